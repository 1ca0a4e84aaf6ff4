package agent

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/node/gc"
	"github.com/berth-run/berth/internal/node/logrotate"
	"github.com/berth-run/berth/internal/record/podlog"
)

// housekeeping keeps what pods leave on the node from growing.
type housekeeping struct {
	logs    *logrotate.Rotator
	garbage *gc.Collector
}

func (a *Agent) buildHousekeeping() {
	c, cri := a.Config.Pods, a.engine.Client.Runtime
	a.housekeeping.logs = logrotate.New(logrotate.Options{
		Runtime: cri, Observed: a.pleg.Table(), Workers: c.Logs.Workers, Now: time.Now, Log: a.Log,
		Limits: logrotate.Limits{MaxSize: c.Logs.MaxSize, MaxFiles: c.Logs.MaxFiles},
	})
	a.housekeeping.garbage = gc.New(gc.Options{
		Runtime: cri, Observer: a.pleg, Observed: a.pleg.Table(),
		Synced: []<-chan struct{}{a.sources.Synced(), a.pleg.Synced()},
		Known:  a.known, Logs: a.steps.dirs, LogsDir: c.LogsDir, LinkDir: podlog.LinkDir(c.LogsDir),
		Policy: gc.Policy(a.Config.Dead), Log: a.Log,
	})
}

// known says that somebody wants a pod, or that it is being ended.
func (a *Agent) known(uid types.UID) bool {
	if _, wanted := a.sources.Desired.Get(uid); wanted {
		return true
	}
	_, here := a.fleet.Member(uid)
	return here
}

// retain forgets the statuses of pods that went while no agent ran.
func (a *Agent) retain(ctx context.Context) error {
	select {
	case <-a.fleet.Settled():
		a.record.Retain(a.known)
		a.steps.allocations.Retain()
	case <-ctx.Done():
	}
	return nil
}
