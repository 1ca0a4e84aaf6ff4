package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/agent/follow"
	"github.com/berth-run/berth/internal/pod/steps/allocation"
	"github.com/berth-run/berth/internal/record/event"
)

// loop is a part of the agent that works until its context ends.
type loop struct {
	name string
	run  func(context.Context) error
}

// loops lists all loops of the agent, one a line.
func (a *Agent) loops() []loop {
	s, keep, published := &a.steps, &a.housekeeping, a.tables.statuses.Pods()
	objects := follow.Objects{Local: a.demand.sources.Objects, Cluster: a.tables.changed, Fleet: a.tables.fleet,
		Volumes: s.contents}
	addresses := follow.Addresses{Changed: a.machine.ips.Changed(), Node: a.tables.node,
		Statuses: a.tables.stale}
	overlaps := follow.Overlaps{Table: a.machine.engine.Overlaps(), Node: event.NodeRef(a.Config.NodeName),
		Conditions: a.demand.access.Conditions, Events: a.records.events}
	return []loop{
		// the desired and the observed pods
		{"runtime health", a.machine.monitor.Run},
		{"observed pods", a.machine.pleg.Run},
		{"pod sources", a.demand.sources.Run},
		{"woken pods", objects.RunLocal},
		{"changed objects", objects.RunCluster},
		{"cluster", a.demand.reports.Run},
		{"node addresses", a.machine.ips.Run},
		{"changed addresses", addresses.Run},
		{"firewall", a.machine.firewall.Run},
		{"iptables chains", a.machine.chains.Run},
		{"pod ranges", overlaps.Run},
		// pods and their status
		{"fleet", func(ctx context.Context) error { return a.tables.fleet.Run(ctx, a.parts()) }},
		{"pod statuses", a.tables.statuses.Run},
		{"pod status files", a.tables.record.Run},
		{"forgotten pods", a.retain},
		// the loops of the steps
		{"probes", s.probes.Run},
		{"cgroups", s.cgroups.Run},
		{"cgroup drift", s.allocations.After(s.drift.Run)},
		{"container cgroup drift", s.allocations.After(s.contained.Run)},
		{"resizes", s.resizes.Run},
		{"allocations", s.allocations.Run},
		{"allocation files", allocation.Mirror(s.allocations)},
		{"placements", s.allocations.After(s.placements.Run)},
		{"devices", s.devices.Supply().Run},
		{"plugins", a.doors.plugins.Run},
		{"volume contents", s.contents.Run},
		{"volume claims", s.claims.Run},
		// the node
		{"history", a.records.history.Run},
		{"lifelines", func(ctx context.Context) error { return a.records.lifelines.Run(ctx, published) }},
		{"log rotation", keep.logs.Run},
		{"container garbage", keep.garbage.Run},
		{"image garbage", keep.images.Run},
		{"machine shutdown", a.doors.power.Run},
		{"evictions", a.doors.pressure.evictor.Run},
		{"evictions for disk", a.doors.pressure.disk.Run},
		{"local storage", a.doors.pressure.limits.Run},
		{"evicted pods", a.doors.pressure.pods.Run},
		{"memory notifications", a.doors.pressure.alarm.Run},
		{"OOM kills", a.doors.pressure.oom.Run},
		{"heap", a.idle.heap.Run},
		{"processors", a.idle.processors.Run},
		// the servers
		{"local API", a.doors.server.Run},
		{"pod resources API", a.doors.resources.Run},
		{"node API", a.doors.remote.Run},
	}
}

// start runs the loops in a group, which ends with the first loop that fails. The error has the name of that loop.
// parts holds the names of the loops that have not ended.
func start(ctx context.Context, group *errgroup.Group, loops []loop, parts *running, log *slog.Logger) {
	for _, l := range loops {
		ended := parts.begin(l.name)
		group.Go(func() error {
			defer ended()
			err := l.run(ctx)
			log.Debug("loop ended", "loop", l.name, "err", err)
			if err == nil || errors.Is(err, context.Canceled) && ctx.Err() != nil {
				return err
			}
			return fmt.Errorf("%s: %w", l.name, err)
		})
	}
}
