package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/base/librarylog"
	"github.com/berth-run/berth/internal/model/pod"
)

// errOffline is the error of calls to a runtime that was not started.
var errOffline = errors.New("no agent runs on this root, and its container runtime was not started")

// Offline returns the local API for a root directory without an agent: its records, its pods with their last statuses,
// and what they hold. With runtime it also starts the container runtime, for images. It starts no pod, and ends none.
// The caller holds the lock of the root directory until stop has returned.
func Offline(ctx context.Context, a *Agent, runtime bool) (h http.Handler, stop func() error, err error) {
	a.began = time.Now()
	librarylog.Forward(a.Log)
	a.machine.runtime = runtime
	if err := makeDirs(a.Config); err != nil {
		return nil, nil, err
	}
	// Run reads the files of the previous agent before it looks at its context.
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := errors.Join(a.records.events.Run(ended), a.records.timeline.Run(ended)); err != nil {
		return nil, nil, fmt.Errorf("read the records of the previous agent: %w", err)
	}
	launch, stop := foundation(context.WithoutCancel(ctx))
	ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	err = a.build(ctx, func(run func(context.Context) error) { launch(run, cancel) })
	if err == nil {
		err = restore(ctx, a, func(run func(context.Context) error) { launch(run, cancel) })
	}
	if err != nil {
		if failed := stop(); failed != nil { // the cause, if a part has failed
			err = failed
		}
		return nil, nil, err
	}
	return a.doors.server.Handler(), stop, nil
}

// restore reads the pods that are on disk, and shows them with their last statuses.
func restore(ctx context.Context, a *Agent, launch engine.Launch) error {
	a.tables.observed.MarkSynced() // nothing is observed
	launch(a.demand.sources.Run)
	select {
	case <-a.demand.sources.LocalSynced():
	case <-ctx.Done():
		return fmt.Errorf("read the pods of the root directory: %w", context.Cause(ctx))
	}
	var pods []*pod.Pod
	for _, p := range a.demand.sources.Desired.Snapshot().All() {
		pods = append(pods, p)
	}
	slices.SortFunc(pods, func(p, q *pod.Pod) int { return p.Seen.Compare(q.Seen) })
	a.tables.fleet.Restore(pods, func(uid types.UID) bool { return pod.Ended(a.tables.record.Last(uid).Phase) })
	a.tables.statuses.Restore(pods)
	return nil
}

// startRuntime starts the container runtime, or stands in for it in an agent that needs none.
func startRuntime(ctx context.Context, a *Agent, launch engine.Launch) (*engine.Engine, error) {
	o := engine.Options{
		Config: a.Config, Kinds: a.Runtimes, Classes: a.demand.objects, Metrics: a.metrics, Tracer: a.records.tracer,
		Log: a.Log,
	}
	if a.machine.runtime {
		return engine.Start(ctx, launch, o)
	}
	return engine.Absent(ctx, o, errOffline)
}
