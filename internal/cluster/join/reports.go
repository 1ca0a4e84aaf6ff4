package join

import (
	"cmp"
	"context"
	"net/netip"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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
	cluster  *cluster
	node     Node
	statuses *report.Writer
	answers  *answers
	mirrors  *mirror.Mirrors
	events   *publish.Publisher
	object   *nodeobject.Object
	lease    *lease.Renewer
	changes  *changes
	startup  startup
	// csiNode and podRanges react to changes of the Node object.
	csiNode, podRanges reaction
}

// Reports implements Membership.
func (c *cluster) Reports(n Node) Reports {
	cfg, o := c.o.Config, c.o
	answers := newAnswers(c.api.Health)
	object := c.newObject(n)
	changes := &changes{
		object: object, conditions: o.Conditions, stale: o.Stale, newAddresses: c.newAddresses,
		retry: cfg.Cluster.Status.UpdateFrequency, log: o.Log,
	}
	return &reports{
		cluster: c, node: n, answers: answers, object: object, changes: changes, startup: newStartup(),
		statuses: report.New(report.Options{Client: c.api.Statuses, Health: answers, Log: o.Log}),
		events: publish.New(publish.Options{
			Source: o.Events, Client: c.api.Events, QPS: float64(cfg.Cluster.Events.QPS),
			Burst: cfg.Cluster.Events.Burst, Path: filepath.Join(cfg.RootDir, "events", "sent.json"), Since: n.Began,
			Log: o.Log,
		}),
		podRanges: changes.podRanges(n.CRI.Runtime), csiNode: changes.csiNode(c.drivers.volumes.Drivers()),
		lease: lease.New(lease.Options{
			Client: c.api.Heartbeat, Node: cfg.NodeName, Nodes: o.Latest.Nodes,
			Duration: cfg.Cluster.Status.LeaseDuration, Log: o.Log,
		}),
		mirrors: mirror.New(mirror.Options{
			Client: c.api.Main, NodeName: cfg.NodeName, Nodes: o.Latest.Nodes,
			Desired: o.Sources.Desired, Mirrors: o.Sources.Cluster.Mirrors, Synced: o.Sources.Synced(),
			Stale: o.Stale, Now: time.Now, Log: o.Log,
		}),
	}
}

// newObject makes the part that keeps the Node object.
func (c *cluster) newObject(n Node) *nodeobject.Object {
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
		Inputs:     inputs{node: n, maxImages: cfg.Cluster.Status.MaxImages, volumes: c.drivers.volumes},
		Conditions: c.o.Conditions, Latest: c.o.Latest,
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

// Report implements Reports.
func (r *reports) Report(m fleet.Member, status corev1.PodStatus) {
	row := report.Row{UID: m.Pod.UID, Status: status, Gone: m.Gone}
	switch {
	case m.Pod.Source == pod.SourceAPI && m.Desired != nil:
		row.Pod = m.Desired.Pod
	case pod.Static(m.Pod.Pod):
		if row.Pod, _ = r.mirrors.Mirror(m.Pod.UID); row.Pod == nil {
			return
		}
	default:
		return
	}
	r.statuses.Set(row)
}

// Flush implements Reports.
func (r *reports) Flush(ctx context.Context) error { return r.statuses.Flush(ctx) }

// Forget implements Reports.
func (r *reports) Forget(uid types.UID) {
	r.cluster.tokens.Forget(uid)
	if r.cluster.certificates != nil {
		r.cluster.certificates.Forget(uid)
	}
	r.statuses.Forget(uid)
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
		r.cluster.o.Conditions.Set(condition.PodLifecycle, problem)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(r.cluster.o.Config.Cluster.Status.UpdateFrequency):
		}
	}
}
