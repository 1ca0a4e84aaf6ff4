package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/berth-run/berth/internal/agent/foundation"
	"github.com/berth-run/berth/internal/agent/local"
	"github.com/berth-run/berth/internal/base/librarylog"
)

// errOffline is the error of calls to a runtime that was not started.
var errOffline = errors.New("no agent runs on this root, and its container runtime was not started")

// Offline returns the local API for a root directory without an agent: its records, its pods with their last statuses,
// and what they hold. With runtime it also starts the container runtime, for images. It starts no pod, and ends none.
// The caller holds the lock of the root directory until stop has returned.
func Offline(ctx context.Context, o Options, runtime bool) (h http.Handler, stop func() error, err error) {
	w := without{pods: true}
	if !runtime {
		w.runtime = errOffline
	}
	a := newAgent(o, w)
	a.began = time.Now()
	librarylog.Forward(a.Log)
	if err := makeDirs(a.Config); err != nil {
		return nil, nil, err
	}
	// Run reads the files of the previous agent before it looks at its context.
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := errors.Join(a.records.events.Run(over), a.records.timeline.Run(over)); err != nil {
		return nil, nil, fmt.Errorf("read the records of the previous agent: %w", err)
	}
	building, cancel := context.WithCancel(ctx)
	defer cancel()
	base := foundation.New(context.WithoutCancel(ctx), cancel)
	if err := a.open(building, base); err != nil {
		if failed := base.Stop(); failed != nil { // the cause, if a part has failed
			err = failed
		}
		return nil, nil, err
	}
	return a.doors.server.Handler(), base.Stop, nil
}

// open makes the parts, and shows the pods that are on disk.
func (a *Agent) open(ctx context.Context, base *foundation.Foundation) error {
	if err := a.build(ctx, base.Launch); err != nil {
		return err
	}
	a.tables.observed.MarkSynced() // nothing is observed
	base.Launch(a.demand.sources.Run)
	return local.Past{Sources: a.demand.sources, Record: a.tables.record, Fleet: a.tables.fleet,
		Statuses: a.tables.statuses}.Restore(ctx)
}
