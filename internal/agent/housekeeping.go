package agent

import (
	"context"
	"time"

	"github.com/berth-run/berth/internal/node/gc"
	"github.com/berth-run/berth/internal/node/logrotate"
	"github.com/berth-run/berth/internal/pod/steps/image/garbage"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/podlog"
)

// housekeeping rotates logs and removes dead containers and unused images, so that disk use stays bounded.
type housekeeping struct {
	logs    *logrotate.Rotator
	garbage *gc.Collector
	images  *garbage.Collector
}

func (a *Agent) buildHousekeeping() {
	c, cri := a.Config.Pods, a.machine.engine.Client.Runtime
	a.housekeeping.logs = logrotate.New(logrotate.Options{
		Runtime: cri, Observed: a.tables.observed.Table, Workers: c.Logs.Workers, Now: time.Now, Log: a.Log,
		Limits: logrotate.Limits{MaxSize: c.Logs.MaxSize, MaxFiles: c.Logs.MaxFiles},
	})
	a.housekeeping.garbage = gc.New(gc.Options{
		Runtime: cri, Observer: a.machine.pleg, Observed: a.tables.observed.Table,
		Synced: []<-chan struct{}{a.demand.sources.Synced(), a.tables.observed.Synced()},
		Pods:   a.roll(), Logs: a.steps.dirs, LogsDir: c.LogsDir, LinkDir: podlog.LinkDir(c.LogsDir),
		Policy: gc.Policy(a.Config.Dead), Events: a.records.events, Node: event.NodeRef(a.Config.NodeName), Log: a.Log,
	})
}

// retain drops the statuses and allocations of pods that were removed while no agent ran.
func (a *Agent) retain(ctx context.Context) error {
	select {
	case <-a.tables.fleet.Settled():
		a.tables.record.Retain(a.roll().Known)
		a.steps.allocations.Retain()
	case <-ctx.Done():
	}
	return nil
}
