package agent

import (
	"fmt"
	"time"

	"github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent/power"
	"github.com/berth-run/berth/internal/agent/series"
	"github.com/berth-run/berth/internal/agent/serve"
	"github.com/berth-run/berth/internal/api/stream"
	"github.com/berth-run/berth/internal/cluster/join"
	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/cluster/nodeview"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/stats"
	"github.com/berth-run/berth/internal/pod/admission"
)

// member is the agent as a node of a cluster, or of none.
type member struct{ *Agent }

// connect makes what the steps need of the cluster, if the agent is to be a node
// of one.
func (a member) connect() (err error) {
	if a.config.Cluster != nil {
		a.cluster, err = join.Connect(join.Options{
			Config: a.config, Version: a.Version, Sources: a.sources, Events: a.events,
			Accepted: func(uid types.UID) bool { return taken(a.fleet, uid) }, Changed: a.objectsChanged,
			Stale:       a.stale,
			NodeChanged: func() { a.fleet.Reconsider() },
			Full: func(p *corev1.Pod, message string) {
				a.gate.Reject(p, admission.VolumeAttachmentLimitExceeded, message)
			},
			Boot: a.facts.Info.BootID, Metrics: a.metrics, Log: a.log,
		})
	}
	a.objects = a.cluster.Objects(a.sources.Objects)
	return err
}

// complete makes what tells the cluster of this node, and the node's own server.
func (a member) complete() (err error) {
	a.cluster.Complete(join.Node{
		Facts: a.facts, IPs: a.ips.IPs, Version: a.engine.Version, CRI: a.engine.Client, Health: a.monitor.Health,
		Began: a.began,
		Devices: func() nodeobject.Devices {
			inv := a.steps.devices.Inventory()
			return nodeobject.Devices{Capacity: inv.Capacity(), Allocatable: inv.Allocatable()}
		},
		FreshDevices: a.steps.devices.Fresh(), Registered: a.steps.devices.Settled, Healthy: a.node().Healthy,
	})
	err = series.Register(series.Options{
		Registry: a.metrics, Node: a.config.NodeName, Version: join.KubernetesVersion,
		Unified: cgroups.IsCgroup2UnifiedMode(),
		Sources: a.sources, PLEG: a.pleg, Fleet: a.fleet,
		Parts: []series.Part{a.steps.volumes, a.steps.images, a.steps.containers, a.steps.cgroups, a.steps.allocations,
			a.steps.resizes, a.store.garbage, a.cluster, a.resources},
	})
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	a.power, err = power.New(power.Options{
		Config: a.config, Fleet: a.fleet, Observed: a.pleg.Observed, Flush: a.cluster.Flush,
		Conditions: a.cluster.Conditions(), Metrics: a.metrics, Events: a.events, Log: a.log,
	})
	if err != nil {
		return err
	}
	a.remote, err = a.serve()
	return err
}

// streamsOf opens connections into the pods of an agent.
func streamsOf(a *Agent) stream.Streams {
	return stream.Streams{CRI: a.engine.Client, Observed: a.pleg.Observed}
}

// serve makes the node's server for the cluster.
func (a member) serve() (*serve.Node, error) {
	machine, err := a.steps.cgroups.Containers().Machine()
	if err != nil {
		return nil, fmt.Errorf("find the machine's cgroup: %w", err)
	}
	return serve.New(serve.Options{
		Config: a.config, Kubelet: a.engine.Effective(a.config.Kubelet),
		Version: a.Version, Began: a.began, Client: a.cluster.Client(), ClientCertificate: a.cluster.Certificate(),
		Addresses: a.view().Addresses, AddressesChanged: a.cluster.AddressesChanged(),
		Pods: a.statuses.Pods(), Settled: a.fleet.Settled(), Streams: streamsOf(a.Agent),
		Runtime: serve.Commands{CRI: a.engine.Client, ID: stream.ContainerID},
		Healthy: a.node().Healthy, Flags: a.Flags, Verbosity: a.Verbosity, Metrics: a.metrics, Log: a.log,
		Stats: stats.Options{
			Node: a.config.NodeName, Root: machine, Machine: a.steps.allocations.Machine(), Capacity: a.facts.Capacity,
			Identity: stats.Identity{MachineID: a.facts.Info.MachineID, SystemUUID: a.facts.Info.SystemUUID,
				BootID: a.facts.Info.BootID},
			Dir: a.config.RootDir, Host: "/", DriverStats: a.cluster.Plugins().VolumeUsage,
			VolumePeriod: a.config.Server.VolumePeriod, Now: time.Now, Log: a.log,
			Source: serve.Source{
				CRI: a.engine.Client, Cgroups: a.steps.cgroups.Containers(), Observed: a.pleg.Table(),
				Pod:   cgroupView(a).pod,
				Named: serve.Named(a.config), Volumes: a.steps.volumes.Mounted, Logs: a.steps.dirs.LogDir,
				Endpoint: a.engine.Endpoint(),
			},
		},
	})
}

// moved has all told of other addresses of the machine.
func (a member) moved() {
	if x := a.cluster.Object(); x != nil {
		x.UpdateSoon()
	}
	a.stale.MarkAll()
}

// HostIPs are the addresses of the node that pods see.
func (a member) HostIPs() []string { return a.view().HostIPs() }

// objectsChanged retries what waits for objects: parts of pods, and their volumes.
func (a member) objectsChanged(keys map[object.Key]bool) {
	a.fleet.ObjectsChanged(keys)
	a.steps.contents.Changed(keys)
}

// view is what is known of this node.
func (a member) view() nodeview.View {
	return nodeview.View{Object: a.cluster.Object(), Facts: a.facts, IPs: a.ips}
}

// asNode adds what the cluster says of the node to what admission goes by:
// labels and taints. Standalone they are as configured.
func (a member) asNode(p *pod.Pod, in *admission.In) {
	in.Config.Standalone, in.Config.Taints = a.cluster == nil, a.config.Node.Taints
	in.Node.Labels = a.view().Labels()
	n := a.view().Node()
	if n != nil {
		in.Config.Taints, in.Offered = n.Spec.Taints, n.Status.Allocatable
	}
	if p.Source == pod.SourceAPI {
		in.Config.NodeUnknown, in.Config.NodeOld = n == nil, a.cluster.Object().AsOf().Before(p.Seen)
	}
}
