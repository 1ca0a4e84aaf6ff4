package join

import (
	"cmp"
	"context"
	"net/netip"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cluster/lease"
	"github.com/berth-run/berth/internal/cluster/mirror"
	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/cluster/publish"
	"github.com/berth-run/berth/internal/cluster/report"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/node/condition"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi"
	"github.com/berth-run/berth/internal/record/event"
)

// KubernetesVersion is the kubelet version that this node reports to the cluster.
const KubernetesVersion = "v1.36.3"

// Node holds the agent's own facts about this node. All fields are required.
type Node struct {
	Facts node.Facts
	// IPs has the machine's current addresses.
	IPs *node.Addresses
	// Version is the runtime's version at the agent's start. It is used until Monitor has a newer one.
	Version *runtimeapi.VersionResponse
	CRI     *cri.Client
	Monitor *cri.Monitor
	Devices Devices
	Health  Health
	Began   time.Time
}

// Devices are the devices of device plugins.
type Devices interface {
	// Inventory returns the devices that plugins offer now.
	Inventory() device.Inventory
	// Fresh means that no earlier agent has recorded devices. It holds until Settled is called.
	Fresh() bool
	// Settled is called after the node was registered.
	Settled()
}

// Health is the agent's own health.
type Health interface {
	// Healthy returns why the agent cannot manage its pods, or nil.
	Healthy(ctx context.Context) error
}

// reports are the parts that report this node and its pods to the cluster.
type reports struct {
	node       Node
	conditions *condition.Table
	period     time.Duration // between two checks of the agent's health
	statuses   *report.Writer
	answers    *answers
	mirrors    *mirror.Mirrors
	events     *publish.Publisher
	object     *nodeobject.Object
	lease      *lease.Renewer
	changes    *changes
	startup    startup
	// csiNode and podRanges react to changes of the Node object.
	csiNode, podRanges reaction
}

// Complete makes the parts that report the node. The agent's steps must exist by then.
func (c *Cluster) Complete(n Node) {
	if c == nil {
		return
	}
	cfg := c.o.Config
	r := &reports{
		node: n, conditions: c.conditions, period: cfg.Cluster.Status.UpdateFrequency, startup: newStartup(),
		answers: newAnswers(c.api.Health),
	}
	c.reports = r
	r.statuses = report.New(report.Options{Client: c.api.Statuses, Health: r.answers, Log: c.o.Log})
	r.events = publish.New(publish.Options{
		Source: c.o.Events, Client: c.api.Events, QPS: float64(cfg.Cluster.Events.QPS), Burst: cfg.Cluster.Events.Burst,
		Path: filepath.Join(cfg.RootDir, "events", "sent.json"), Since: n.Began, Log: c.o.Log,
	})
	r.object = c.newObject(n)
	r.changes = &changes{
		object: r.object, conditions: c.conditions, stale: c.o.Stale, newAddresses: wake.New(),
		retry: cfg.Cluster.Status.UpdateFrequency, log: c.o.Log,
	}
	r.podRanges, r.csiNode = r.changes.podRanges(n.CRI.Runtime), r.changes.csiNode(c.plugins.volumes.Drivers())
	r.lease = lease.New(lease.Options{
		Client: c.api.Heartbeat, Node: cfg.NodeName, Nodes: c.nodes, Duration: cfg.Cluster.Status.LeaseDuration,
		Log: c.o.Log,
	})
	r.mirrors = mirror.New(mirror.Options{
		Client: c.api.Main, NodeName: cfg.NodeName, Nodes: c.nodes,
		Desired: c.o.Sources.Desired, Mirrors: c.o.Sources.Cluster.Mirrors, Synced: c.o.Sources.Synced(),
		Stale: c.o.Stale, Now: time.Now, Log: c.o.Log,
	})
}

// newObject makes the part that keeps the Node object.
func (c *Cluster) newObject(n Node) *nodeobject.Object {
	cfg := c.o.Config
	handlers, err := cfg.Runtime.Embedded.Annotation(cfg.Runtime.CgroupDriver)
	if err != nil {
		c.o.Log.Error("cannot describe the runtime handlers, the Node object lacks them", "err", err)
	}
	return nodeobject.New(nodeobject.Options{
		Client: c.api.Heartbeat, Watches: c.api.Main,
		Config: nodeobject.Config{
			Machine: n.Facts, AskedIPs: cfg.Node.IPs, Taints: cfg.Node.Taints,
			ProviderID:    cfg.Cluster.Registration.ProviderID,
			ExternalCloud: cfg.Cluster.ExternalCloud, ControllerAttach: cfg.Cluster.AttachDetach,
			Port:             int32(cfg.Server.HTTPS.Port()),
			Version:          KubernetesVersion,
			DeclaredFeatures: nodeobject.Declared(cfg.Disabled, cfg.Server.HTTPS.IsValid()),
			FreshDevices:     n.Devices.Fresh(),
			RuntimeHandlers:  handlers,
		},
		Inputs:     inputs{node: n, maxImages: cfg.Cluster.Status.MaxImages, volumes: c.plugins.volumes},
		Conditions: c.conditions, Nodes: c.nodes, FactsChanged: c.factsChanged,
		Register:    cfg.Cluster.Registration.Register,
		UpdateEvery: cfg.Cluster.Status.UpdateFrequency, ReportEvery: cfg.Cluster.Status.ReportFrequency,
		Ref: event.NodeRef(cfg.NodeName), Events: c.o.Events, Log: c.o.Log,
	})
}

// inputs supplies the facts of the Node object that change while the agent runs. It implements nodeobject.Inputs.
type inputs struct {
	node      Node
	maxImages int // in the Node object
	volumes   *csi.Kind
}

// IPs implements nodeobject.Inputs.
func (i inputs) IPs() []netip.Addr { return i.node.IPs.IPs() }

// Devices implements nodeobject.Inputs.
func (i inputs) Devices() nodeobject.Devices {
	inventory := i.node.Devices.Inventory()
	return nodeobject.Devices{Capacity: inventory.Capacity(), Allocatable: inventory.Allocatable()}
}

// Runtime implements nodeobject.Inputs.
func (i inputs) Runtime() nodeobject.Runtime {
	h := i.node.Monitor.Health()
	return nodeobject.RuntimeOf(cmp.Or(h.Version, i.node.Version), h.Status)
}

// Images implements nodeobject.Inputs. It returns the largest images of the runtime.
func (i inputs) Images(ctx context.Context) ([]corev1.ContainerImage, error) {
	r, err := i.node.CRI.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	return nodeobject.Images(r.Images, i.maxImages), nil
}

// VolumesInUse implements nodeobject.Inputs.
func (i inputs) VolumesInUse() ([]corev1.UniqueVolumeName, bool) {
	return i.volumes.Attachments().InUse()
}

// Conditions returns the conditions of this node. It is nil for a standalone agent.
func (c *Cluster) Conditions() *condition.Table {
	if c == nil {
		return nil
	}
	return c.conditions
}

// Report implements status.Reporter: it queues the status of a pod for the API server.
func (c *Cluster) Report(m fleet.Member, status corev1.PodStatus) {
	if c == nil {
		return
	}
	row := report.Row{UID: m.Pod.UID, Status: status, Gone: m.Gone}
	switch {
	case m.Pod.Source == pod.SourceAPI && m.Desired != nil:
		row.Pod = m.Desired.Pod
	case pod.Static(m.Pod.Pod):
		if row.Pod, _ = c.reports.mirrors.Mirror(m.Pod.UID); row.Pod == nil {
			return
		}
	default:
		return
	}
	c.reports.statuses.Set(row)
}

// Flush sends the queued statuses to the API server, starting with the statuses of ended pods.
func (c *Cluster) Flush(ctx context.Context) error {
	if c == nil {
		return nil
	}
	return c.reports.statuses.Flush(ctx)
}

// settleDevices records that the node was registered, after which its devices are no longer fresh.
func (r *reports) settleDevices(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.object.Registered():
	}
	r.node.Devices.Settled()
	return nil
}

// watchHealth keeps the PodLifecycle condition up to date.
func (r *reports) watchHealth(ctx context.Context) error {
	for {
		problem := ""
		if err := r.node.Health.Healthy(ctx); err != nil {
			problem = err.Error()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.conditions.Set(condition.PodLifecycle, problem)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(r.period):
		}
	}
}
