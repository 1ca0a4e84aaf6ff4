package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/berth-run/berth/internal/agent/input"
	"github.com/berth-run/berth/internal/agent/leftover"
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/node/drift"
	"github.com/berth-run/berth/internal/node/telemetry"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/gate"
	"github.com/berth-run/berth/internal/pod/podstatus"
	"github.com/berth-run/berth/internal/pod/status"
	"github.com/berth-run/berth/internal/pod/steps/cgroup"
	"github.com/berth-run/berth/internal/pod/steps/container"
	"github.com/berth-run/berth/internal/pod/steps/hook"
	"github.com/berth-run/berth/internal/pod/steps/placement"
	"github.com/berth-run/berth/internal/pod/steps/poddir"
	"github.com/berth-run/berth/internal/pod/steps/probe"
	"github.com/berth-run/berth/internal/pod/steps/sandbox"
	"github.com/berth-run/berth/internal/pod/steps/userns"
	"github.com/berth-run/berth/internal/pod/stop"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/podlog"
	"github.com/berth-run/berth/internal/record/timeline"
)

// patience is how long a runtime call counts against startsAtOnce. After that the next call starts beside it.
const patience = 5 * time.Second

// startsAtOnce limits how many sandboxes and containers the runtime makes at the same time. More would only wait for
// each other, for the CPUs and in the kernel (bench/README.md).
func startsAtOnce() int { return 4 * runtime.NumCPU() }

// shareOfPod is how many of these a pod with many containers may make. Each needs a CPU most of the time.
func shareOfPod() int { return max(1, runtime.NumCPU()/2) }

func (a *Agent) nodeConfig() node.Config {
	c := a.Config
	var lookup func(context.Context, string) ([]netip.Addr, error)
	if c.Cluster != nil {
		lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	return node.Config{
		Name: c.NodeName, IPs: c.Node.IPs, Lookup: lookup, Labels: c.Node.Labels,
		MaxPods: c.Node.MaxPods, PodsPerCore: c.Node.PodsPerCore,
		Reserved: node.Reserved{Kube: c.Node.KubeReserved, System: c.Node.SystemReserved,
			Thresholds: c.Node.Eviction.Thresholds},
		Dir: c.RootDir, NoStorage: c.Node.Storage.Off, Log: a.Log,
	}
}

func otlp(c *config.Config) *timeline.OTLP {
	if t := c.Tracing; t != nil {
		return &timeline.OTLP{Endpoint: t.Endpoint, SamplingRatePerMillion: t.SamplingRatePerMillion}
	}
	return nil
}

// buildSteps makes the parts that carry out the steps of a pod's life.
func (a *Agent) buildSteps() error {
	c := a.Config
	s := &a.steps
	s.dirs = poddir.New(poddir.Config{
		Root: c.RootDir, Logs: c.Pods.LogsDir, ResolvConf: c.Pods.ResolvConf, Events: a.records.events,
		Node: event.NodeRef(c.NodeName), NoHostnameOverride: c.Disabled.HostnameOverride,
		Resolver: poddir.Resolver{ClusterDNS: c.Pods.ClusterDNS, ClusterDomain: c.Pods.ClusterDomain,
			Standalone: a.Config.Cluster == nil, NodeIPs: a.machine.facts.IPs},
	})
	a.tables.record = status.NewRecord(status.RecordOptions{
		Dir: filepath.Join(c.RootDir, "status"), Dirs: s.dirs, Stale: a.tables.stale, Log: a.Log,
	})
	logDamage(a.Log, a.tables.record.Load())
	var err error
	if s.drift, err = newDrift(a); err != nil {
		return err
	}
	n, ledger, err := a.readNode()
	if err != nil {
		return err
	}
	rules := placement.Rules{Ledger: ledger}
	s.cgroups = newCgroups(a, rules)
	a.buildAllocations(n, ledger)
	s.contained = newContainerDrift(a, rules)
	updates := drift.Updates{RuntimeServiceClient: a.machine.engine.Client.Runtime, Containers: s.contained}
	s.placements = newPlacements(a, ledger, updates)
	renderNode, err := container.ReadNode("/", c, a.machine.facts, rules)
	if err != nil {
		return fmt.Errorf("look at the machine: %w", err)
	}
	if renderNode.MinOOMScoreAdj != nil && !a.machine.engine.LogsOOMFloor {
		a.Log.Info("no CAP_SYS_RESOURCE: oom_score_adj of containers is never below this process's own", "own",
			*renderNode.MinOOMScoreAdj)
	}
	places := sandbox.NewPlaces(startsAtOnce(), shareOfPod(), patience)
	s.sandboxes = sandbox.New(sandbox.Options{
		Runtime: a.machine.engine.Client.Runtime, Events: a.records.events, Names: s.dirs, Cgroups: s.cgroups,
		Observer: a.machine.pleg,
		Limit:    places, Network: sandbox.Network{Monitor: a.machine.monitor}, Classes: a.demand.access.Objects,
		Resources: renderNode, Log: a.Log,
		Userns: userns.New(userns.Config{Root: c.RootDir, IDsPerPod: c.Pods.UsernsIDs}),
		Kernel: a.machine.engine,
	})
	if err := buildImages(a); err != nil {
		return err
	}
	buildVolumes(a)
	s.resizes = newResizes(a, renderNode, updates)
	logDamage(a.Log, s.resizes.Load())
	s.containers = container.New(container.Options{
		Runtime: a.machine.engine.Client.Runtime, Images: s.images, Sandboxes: s.sandboxes, Volumes: s.volumes,
		Dirs:    s.dirs,
		Objects: a.demand.access.Objects, Services: a.demand.access.Services,
		Lifecycle: append(s.lifecycle(
			hook.New(hook.Options{Dir: filepath.Join(c.RootDir, "hooks.d"), Log: a.Log}), inputOf(a)),
			a.demand.access.Lifecycle...),
		Observer: a.machine.pleg, Events: a.records.events, Limit: places.Ahead(), Kills: places.Shares(),
		Node:      renderNode,
		Addresses: view(a), Handlers: a.machine.engine, Replacements: s.resizes,
		LegacyLogDir: podlog.LinkDir(c.Pods.LogsDir), Log: a.Log,
	})
	s.probes, err = probe.New(probe.Options{
		CRI: a.machine.engine.Client.Runtime, Events: a.records.events, Observed: a.tables.observed,
		Addresses:  view(a),
		Containers: s.containers, Before: status.Before{Record: a.tables.record, Desired: a.demand.sources.Desired},
		Statuses: a.tables.stale, Asides: a.tables.asides, Lifelines: a.records.lifelines,
		Dir: filepath.Join(c.RootDir, "probes"), Metrics: a.metrics, Log: a.Log,
	})
	if err != nil {
		return err
	}
	logDamage(a.Log, s.probes.Load())
	return nil
}

// logDamage logs an error from reading the files of an earlier agent. The agent continues with the files that it could
// read.
func logDamage(log *slog.Logger, err error) {
	if err != nil {
		log.Error("cannot read a file of an earlier agent, continuing without it", "err", err)
	}
}

// buildFleet makes the parts that need the steps: statuses, servers and admission.
func (a *Agent) buildFleet() error {
	a.doors.resources = newPodResources(a)
	var err error
	if a.doors.power, err = newPower(a); err != nil {
		return err
	}
	if a.doors.pressure, err = newEvictions(a); err != nil {
		return err
	}
	in := inputOf(a)
	a.doors.gate = gate.New(gate.Options{
		Inputs: in, Observed: a.tables.observed.Table, Statuses: a.tables.record, Shutdown: a.doors.power,
		Evictions: a.doors.pressure.pods, Labels: a.tables.node,
		Devices: a.steps.devices, Ledger: a.steps.allocations, Resources: a.steps.resizes, Pods: a.stops(),
		Began: a.began, Now: time.Now, Recorder: a.records.timeline, Provider: a.records.tracer,
		Counts: a.tables.counts, Events: a.records.events, Log: a.Log,
	})
	if err := a.buildStatuses(); err != nil {
		return err
	}
	if a.machine.stats, err = newStats(a); err != nil {
		return err
	}
	a.doors.server = server.New(a.serverOptions(in))
	return buildDoors(a)
}

// inputOf returns this node as the rules of admission see it.
func inputOf(a *Agent) input.Node {
	return input.Node{Config: a.Config, Began: a.began, Engine: a.machine.engine, Sources: a.demand.sources,
		Objects: a.demand.access.Objects, Ledger: a.steps.allocations, View: view(a), Conditions: a.tables.conditions}
}

// stops returns the part that evicts, preempts and rejects pods that already run.
func (a *Agent) stops() stop.Pods { return stop.Pods{Fleet: a.tables.fleet, Events: a.records.events} }

// buildStatuses makes the part that publishes the statuses of pods.
func (a *Agent) buildStatuses() error {
	starts, err := telemetry.NewStarts(a.metrics, a.records.timeline, time.Now)
	if err != nil {
		return err
	}
	s, off := &a.steps, a.Config.Disabled
	a.tables.statuses = status.New(status.Options{
		Record: a.tables.record, Stale: a.tables.stale, Fleet: a.tables.fleet, Reporter: a.demand.reports,
		Asides: a.tables.asides,
		Starts: starts, Timeline: a.records.timeline,
		Source: status.Parts{
			Runtime: a.machine.engine, Observer: a.machine.pleg, Containers: s.containers, Probes: s.probes,
			Resizes: s.resizes, Devices: s.devices, Claims: a.demand.access.Drivers, Addresses: view(a),
			Kills: a.doors.pressure.oom,
			Hidden: podstatus.Hidden{StartCondition: off.StartCondition, ResourceHealth: off.ResourceHealth,
				ResourceHealthMessage: off.ResourceHealthMessage},
		},
		Keepers: []status.Keeper{
			a.doors.gate, s.containers, s.images, s.probes, s.resizes, s.placements, s.allocations, a.demand.reports,
			a.housekeeping.garbage, a.tables.asides,
		},
	})
	return nil
}

// parts are the tables and parts that the running fleet uses.
func (a *Agent) parts() fleet.Parts {
	s := &a.steps
	return fleet.Parts{
		Desired: a.demand.sources.Desired, Observed: a.tables.observed, DesiredSynced: a.demand.sources.Synced(),
		Admission: a.doors.gate,
		Leftovers: a.leftovers(), Manifests: a.demand.sources, Prefetcher: s.images, Statuses: a.tables.statuses,
		Asides: a.tables.asides,
		Watchers: append(slices.Clone(a.demand.access.Watchers), a.doors.power, a.doors.pressure.pods,
			a.doors.pressure.disk, a.doors.pressure.storage), Idle: a.idle,
		Worker: worker.Options{
			Steps:    s.list(a.demand.access.Steps...),
			Observer: cgroup.View{Runtime: a.machine.pleg, Cgroups: s.cgroups, Pods: a.tables.fleet},
			Probes:   s.probes, Statuses: a.tables.record, Resizes: s.resizes, Timelines: a.records.timeline,
			MaxBackoff: a.Config.Pods.MaxRestartBackoff, Events: a.records.events, Now: time.Now, Log: a.Log,
		},
	}
}

// leftovers finds the pods that have directories, volumes, cgroups, claims or devices on this node.
func (a *Agent) leftovers() leftover.Finder {
	s := &a.steps
	return leftover.Finder{
		Orphans: []leftover.Owner{s.dirs, s.volumes, s.cgroups},
		Users:   []leftover.User{s.claims, s.devices.Records(), a.demand.access.Drivers},
	}
}
