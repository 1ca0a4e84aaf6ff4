package agent

import (
	"fmt"
	"time"

	"github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent/power"
	"github.com/berth-run/berth/internal/agent/series"
	"github.com/berth-run/berth/internal/agent/serve"
	"github.com/berth-run/berth/internal/api/stream"
	"github.com/berth-run/berth/internal/cluster/join"
	"github.com/berth-run/berth/internal/cluster/nodeview"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/node/stats"
	"github.com/berth-run/berth/internal/pod/admission"
)

// connect makes the parts of the cluster that the steps need, if the configuration names a cluster.
func connect(a *Agent) (err error) {
	if a.Config.Cluster != nil {
		a.cluster, err = join.Connect(join.Options{
			Config: a.Config, Version: a.Version, Sources: a.sources, Events: a.events,
			Accepted: a.fleet.Working,
			Changed:  func(keys map[object.Key]bool) { objectsChanged(a, keys) },
			Stale:    a.stale, NodeChanged: a.fleet.Reconsider,
			Full: func(p *corev1.Pod, message string) {
				a.gate.Reject(p, admission.VolumeAttachmentLimitExceeded, message)
			},
			Boot: a.facts.Info.BootID, Metrics: a.metrics, Log: a.Log,
		})
	}
	a.objects = a.cluster.Objects(a.sources.Objects)
	return err
}

// completeCluster makes the parts that report this node to the cluster.
func completeCluster(a *Agent) {
	a.cluster.Complete(join.Node{
		Facts: a.facts, IPs: a.ips, Version: a.engine.Version, CRI: a.engine.Client, Monitor: a.monitor,
		Devices: a.steps.devices, Health: a.node(), Began: a.began,
	})
}

// buildDoors registers the metrics, and makes the part for the machine's shutdown and the node's HTTPS server.
func buildDoors(a *Agent) error {
	err := series.Register(series.Options{
		Registry: a.metrics, Node: a.Config.NodeName, Version: join.KubernetesVersion,
		Unified: cgroups.IsCgroup2UnifiedMode(),
		Sources: a.sources, PLEG: a.pleg, Observed: a.observed, Fleet: a.fleet,
		Parts: []series.Part{a.steps.volumes, a.steps.images, a.steps.containers, a.steps.cgroups, a.steps.allocations,
			a.steps.resizes, a.store.garbage, a.cluster, a.resources},
	})
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	a.power, err = power.New(power.Options{
		Config: a.Config, Fleet: a.fleet, Observed: a.observed, Flush: a.cluster.Flush,
		Conditions: a.cluster.Conditions(), Metrics: a.metrics, Events: a.events, Log: a.Log,
	})
	if err != nil {
		return err
	}
	a.remote, err = serveNode(a)
	return err
}

// streamsOf returns the part that opens exec, attach and port-forward connections into pods.
func streamsOf(a *Agent) stream.Streams {
	return stream.Streams{CRI: a.engine.Client, Observed: a.observed.Observed}
}

// serveNode makes the node's HTTPS server for the cluster.
func serveNode(a *Agent) (*serve.Node, error) {
	machine, err := a.steps.cgroups.Containers().Machine()
	if err != nil {
		return nil, fmt.Errorf("find the machine's cgroup: %w", err)
	}
	return serve.New(serve.Options{
		Config: a.Config, Kubelet: a.engine.Effective(a.Config.Kubelet),
		Version: a.Version, Began: a.began, Client: a.cluster.Client(), ClientCertificate: a.cluster.Certificate(),
		Node: view(a), AddressesChanged: a.cluster.AddressesChanged(),
		Pods: a.statuses.Pods(), Settled: a.fleet.Settled(), Streams: streamsOf(a),
		Runtime: serve.Commands{CRI: a.engine.Client, ID: stream.ContainerID},
		Healthy: a.node().Healthy, Verbosity: a.Verbosity, Metrics: a.metrics, Log: a.Log,
		Stats: stats.Options{
			Node: a.Config.NodeName, Root: machine, Machine: a.steps.allocations.Machine(), Capacity: a.facts.Capacity,
			Identity: stats.Identity{MachineID: a.facts.Info.MachineID, SystemUUID: a.facts.Info.SystemUUID,
				BootID: a.facts.Info.BootID},
			Dir: a.Config.RootDir, Host: "/", DriverStats: a.cluster.Plugins().VolumeUsage,
			VolumePeriod: a.Config.Server.VolumePeriod, Now: time.Now, Log: a.Log,
			Source: serve.Source{
				CRI: a.engine.Client, Cgroups: a.steps.cgroups.Containers(), Observed: a.observed.Table,
				Pod:   a.fleet.Pod,
				Named: serve.Named(a.Config), Volumes: a.steps.volumes.Mounted, Logs: a.steps.dirs.LogDir,
				Endpoint: a.engine.Endpoint(),
			},
		},
	})
}

// addressesChanged publishes new addresses of the machine: in the Node object and in the statuses of pods.
func addressesChanged(a *Agent) {
	if x := a.cluster.Object(); x != nil {
		x.UpdateSoon()
	}
	a.stale.MarkAll()
}

// objectsChanged retries the parts of pods that wait for these objects, and updates the volumes that show them.
func objectsChanged(a *Agent, keys map[object.Key]bool) {
	a.fleet.ObjectsChanged(keys)
	a.steps.contents.Changed(keys)
}

// view returns the Node object, or the facts of the machine when there is no Node object.
func view(a *Agent) nodeview.View {
	return nodeview.View{Object: a.cluster.Object(), Facts: a.facts, IPs: a.ips}
}
