package agent

import (
	"fmt"
	"maps"
	"path/filepath"

	"github.com/opencontainers/cgroups"

	"github.com/berth-run/berth/internal/agent/power"
	"github.com/berth-run/berth/internal/agent/series"
	"github.com/berth-run/berth/internal/agent/serve"
	"github.com/berth-run/berth/internal/api/stream"
	"github.com/berth-run/berth/internal/cluster/join"
	"github.com/berth-run/berth/internal/cluster/nodeview"
	"github.com/berth-run/berth/internal/node/plugin"
	"github.com/berth-run/berth/internal/node/stats"
	"github.com/berth-run/berth/internal/pod/gate"
)

// connect makes the parts of the cluster that the steps need.
func connect(a *Agent) (join.Membership, error) {
	return join.Connect(join.Options{
		Config: a.Config, Version: a.Version, Sources: a.demand.sources, Events: a.records.events,
		Fleet: a.tables.fleet, Changed: a.tables.changed, Stale: a.tables.stale,
		Rejecter:   gate.Rejecter{Counts: a.tables.counts, Events: a.records.events, Pods: a.stops()},
		Conditions: a.tables.conditions, Latest: a.tables.node, Boot: a.machine.facts.Info.BootID, Metrics: a.metrics,
		Log: a.Log,
	})
}

// newReports makes the parts that report this node to the cluster.
func newReports(a *Agent, m join.Membership) join.Reports {
	return m.Reports(join.Node{
		Facts: a.machine.facts, IPs: a.machine.ips, Version: a.machine.engine.Version, CRI: a.machine.engine.Client,
		Monitor: a.machine.monitor, Devices: a.steps.devices, Health: a.node(), Began: a.began,
	})
}

// newPower makes the part for the machine's shutdown.
func newPower(a *Agent) (*power.Machine, error) {
	return power.New(power.Options{
		Config: a.Config, Fleet: a.tables.fleet, Observed: a.tables.observed, Statuses: a.demand.reports,
		Conditions: a.demand.access.Conditions, Metrics: a.metrics, Events: a.records.events, Log: a.Log,
	})
}

// buildDoors registers the metrics, and makes the node's HTTPS server.
func buildDoors(a *Agent) error {
	handlers := map[string]plugin.Handler{plugin.TypeDevice: a.steps.devices.Supply().Registry()}
	maps.Copy(handlers, a.demand.access.Handlers)
	a.doors.plugins = plugin.New(plugin.Options{Dir: filepath.Join(a.Config.RootDir, "plugins_registry"),
		Handlers: handlers, Log: a.Log})
	err := series.Register(series.Options{
		Registry: a.metrics, Node: a.Config.NodeName, Version: join.KubernetesVersion,
		Unified: cgroups.IsCgroup2UnifiedMode(),
		Sources: a.demand.sources, PLEG: a.machine.pleg, Observed: a.tables.observed, Fleet: a.tables.fleet,
		Parts: []series.Part{a.steps.volumes, a.steps.images, a.steps.containers, a.steps.cgroups, a.steps.allocations,
			a.steps.resizes, a.housekeeping.images, a.demand.reports, a.doors.resources, a.tables.asides,
			a.doors.plugins, a.demand.access.Drivers, a.doors.pressure.metrics, a.doors.pressure.oom,
			a.machine.stats},
	})
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	a.doors.remote, err = serveNode(a)
	return err
}

// streamsOf returns the part that opens exec, attach and port-forward connections into pods.
func streamsOf(a *Agent) stream.Streams {
	return stream.Streams{CRI: a.machine.engine.Client, Observed: a.tables.observed}
}

// serveNode makes the node's HTTPS server for the cluster.
func serveNode(a *Agent) (*serve.Node, error) {
	access := a.demand.access
	return serve.New(serve.Options{
		Config: a.Config, Kubelet: a.machine.engine.Effective(a.Config.Kubelet),
		Version: a.Version, Began: a.began, Client: access.Client,
		TokenReviews: access.TokenReviews, AccessReviews: access.AccessReviews,
		ClientCertificate: access.Certificate,
		Node:              view(a), AddressesChanged: access.AddressesChanged,
		Pods: a.tables.statuses.Pods(), Settled: a.tables.fleet.Settled(), Streams: streamsOf(a),
		Runtime: serve.Commands{CRI: a.machine.engine.Client},
		Health:  a.node(), Verbosity: a.Verbosity, Metrics: a.metrics, Log: a.Log,
		Stats: a.machine.stats,
	})
}

// newStats makes the part that measures usage on request.
func newStats(a *Agent) (*stats.Stats, error) {
	return serve.Source{
		CRI: a.machine.engine.Client, Cgroups: a.steps.cgroups.Containers(), Observed: a.tables.observed.Table,
		Fleet: a.tables.fleet, Named: serve.Named(a.Config), Mounts: a.steps.volumes,
		Dirs: a.steps.dirs, Endpoint: a.machine.engine.Endpoint(),
		Disk: a.doors.pressure.disk,
	}.Stats(stats.Options{
		Node: a.Config.NodeName, Machine: a.steps.allocations.Machine(), Capacity: a.machine.facts.Capacity,
		Identity: a.machine.facts.Info, Dir: a.Config.RootDir, Drivers: a.demand.access.Drivers,
		VolumePeriod: a.Config.Server.VolumePeriod, Log: a.Log,
	})
}

// view returns the Node object, or the facts of the machine when there is no Node object.
func view(a *Agent) nodeview.View {
	return nodeview.View{Latest: a.tables.node, Facts: a.machine.facts, IPs: a.machine.ips}
}
