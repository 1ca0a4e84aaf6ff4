package join

import (
	"cmp"
	"context"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cluster/kubeapi"
	"github.com/berth-run/berth/internal/cluster/lease"
	"github.com/berth-run/berth/internal/cluster/mirror"
	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/cluster/publish"
	"github.com/berth-run/berth/internal/cluster/report"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/node/condition"
	"github.com/berth-run/berth/internal/node/kernel"
	"github.com/berth-run/berth/internal/node/stats"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/record/event"
)

// KubernetesVersion is the kubelet version that this node reports to the cluster.
const KubernetesVersion = "v1.36.3"

// Node holds the agent's own facts about this node. All fields are required.
type Node struct {
	Facts node.Facts
	// IPs returns the machine's current addresses.
	IPs func() []netip.Addr
	// Version is the runtime's version at the agent's start. It is used until Health has a newer one.
	Version *runtimeapi.VersionResponse
	CRI     *cri.Client
	// Health returns the last known state of the container runtime.
	Health  func() cri.Health
	Devices func() nodeobject.Devices
	// FreshDevices means that no earlier agent has recorded devices. It holds until Registered is called.
	FreshDevices bool
	Registered   func()
	// Healthy returns why the agent cannot manage its pods, or nil.
	Healthy func(context.Context) error
	Began   time.Time
}

// parts report this node and its pods to the cluster.
type parts struct {
	statuses     *report.Writer
	answers      *answers
	mirrors      *mirror.Mirrors
	events       *publish.Publisher
	object       *nodeobject.Object
	lease        *lease.Renewer
	newAddresses wake.Signal // the node's addresses have changed
	// These react to changes of the Node object.
	podRanges, csiNode func(context.Context, *corev1.Node) time.Duration
	startup            startup
	began              time.Time // of the agent
	healthy            func(context.Context) error
}

// Complete makes the parts that report the node. The agent's steps must exist by then.
func (c *Cluster) Complete(n Node) {
	if c == nil {
		return
	}
	cfg := c.Config
	p := &c.node
	p.healthy, p.startup, p.began = n.Healthy, newStartup(), n.Began
	p.answers = newAnswers(c.api.Health)
	p.statuses = report.New(report.Options{Client: c.api.Statuses, Health: p.answers, Log: c.Log})
	p.events = publish.New(publish.Options{
		Source: c.Events, Client: c.api.Events, QPS: float64(cfg.Cluster.Events.QPS), Burst: cfg.Cluster.Events.Burst,
		Path: filepath.Join(cfg.RootDir, "events", "sent.json"), Since: n.Began, Log: c.Log,
	})
	p.newAddresses = wake.New()
	p.podRanges, p.csiNode = changes{c}.podRanges(n.CRI.Runtime), changes{c}.csiNode()
	p.object = nodeobject.New(nodeobject.Options{
		Client: c.api.Heartbeat, Watches: c.api.Main,
		Config: nodeobject.Config{
			Machine: n.Facts, AskedIPs: cfg.Node.IPs, Taints: cfg.Node.Taints,
			ProviderID:    cfg.Cluster.Registration.ProviderID,
			ExternalCloud: cfg.Cluster.ExternalCloud, ControllerAttach: cfg.Cluster.AttachDetach,
			Port:    int32(cfg.Server.HTTPS.Port()),
			Version: KubernetesVersion, DeclaredFeatures: nodeobject.Declared(cfg.Server.HTTPS.IsValid()),
			FreshDevices: n.FreshDevices,
		},
		Inputs: nodeobject.Inputs{
			Conditions: c.conditions, Devices: n.Devices,
			Runtime: func() nodeobject.Runtime {
				h := n.Health()
				return nodeobject.RuntimeOf(cmp.Or(h.Version, n.Version), h.Status)
			},
			IPs: n.IPs, Images: c.images(n.CRI), VolumesInUse: c.plugins.volumes.InUse,
		},
		Register: cfg.Cluster.Registration.Register, Registered: n.Registered,
		UpdateEvery: cfg.Cluster.Status.UpdateFrequency, ReportEvery: cfg.Cluster.Status.ReportFrequency,
		Ref: event.NodeRef(cfg.NodeName), Events: c.Events, Log: c.Log,
	})
	p.lease = lease.New(lease.Options{
		Client: c.api.Heartbeat, Node: cfg.NodeName, Owner: c.nodeUID, Duration: cfg.Cluster.Status.LeaseDuration,
		Log: c.Log,
	})
	p.mirrors = mirror.New(mirror.Options{
		Client: c.api.Main, NodeName: cfg.NodeName, NodeUID: func() (types.UID, bool) {
			uid := c.nodeUID()
			return uid, uid != ""
		},
		Desired: c.Sources.Desired, Mirrors: c.Sources.Cluster.Mirrors, Synced: c.Sources.Synced(),
		Changed: c.Stale.Mark,
		Now:     time.Now, Log: c.Log,
	})
}

// images returns a function that lists the largest images of the runtime, for the Node object.
func (c *Cluster) images(client *cri.Client) func(context.Context) ([]corev1.ContainerImage, error) {
	return func(ctx context.Context) ([]corev1.ContainerImage, error) {
		r, err := client.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
		if err != nil {
			return nil, err
		}
		return nodeobject.Images(r.Images, c.Config.Cluster.Status.MaxImages), nil
	}
}

// nodeUID returns the UID of the Node object. It is empty until the object was received.
func (c *Cluster) nodeUID() types.UID {
	select {
	case <-c.node.object.Received():
		return c.node.object.Node().UID
	default:
		return ""
	}
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
		if row.Pod, _ = c.node.mirrors.Mirror(m.Pod.UID); row.Pod == nil {
			return
		}
	default:
		return
	}
	c.node.statuses.Set(row)
}

// Flush sends the queued statuses to the API server, starting with the statuses of ended pods.
func (c *Cluster) Flush(ctx context.Context) error {
	if c == nil {
		return nil
	}
	return c.node.statuses.Flush(ctx)
}

// Run starts all parts and returns when ctx ends. It sends nothing to the API server before there is a client
// certificate.
func (c *Cluster) Run(ctx context.Context) error {
	if c == nil {
		return nil
	}
	announce(c.Events, c.Config.NodeName, c.Version, cgroups.IsCgroup2UnifiedMode())
	if !c.Config.Kubelet.ProtectKernelDefaults {
		if err := kernel.Set(kernel.Root); err != nil {
			c.Log.Warn("cannot set the kernel parameters that the kubelet sets, pods run with the current ones", "err",
				err)
		}
	}
	var running sync.WaitGroup
	defer running.Wait()
	begin := func(run func(context.Context) error) {
		running.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				c.Log.Error("a part that talks to the cluster has ended", "err", err)
			}
		})
	}
	begin(c.restart(c.certificate.Run))
	begin(c.api.Run)
	begin(c.offline.Run)
	begin(record{c}.restore)
	begin(c.conditions.Run)
	begin(c.watchHealth)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.certificate.Ready():
	}
	node := changes{c}
	way := moments{booted: stats.BootTime("/"), began: c.node.began, tried: time.Now()}
	begin(func(ctx context.Context) error { return c.node.startup.follow(ctx, c.node.object, way) })
	for _, run := range []func(context.Context) error{
		c.watchPods, c.objects.Run, c.node.answers.run, c.node.statuses.Run, c.node.events.Run, c.node.object.Run,
		c.node.lease.Run, c.node.mirrors.Run, c.plugins.volumes.Run, c.plugins.claims.Run,
		node.follow(c.plugins.nodeChanged), node.follow(node.notify), node.follow(c.node.csiNode),
		node.follow(node.addresses()), node.follow(c.node.podRanges),
	} {
		begin(run)
	}
	<-ctx.Done()
	return ctx.Err()
}

// restart runs a part again when it fails, for example for lack of inotify instances. The node does without the part
// until then.
func (c *Cluster) restart(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		delays := retry.Doubling(time.Second, time.Minute)
		for {
			err := run(ctx)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			delay := delays.Step()
			c.Log.Error("a part that talks to the cluster has ended, restarting it", "err", err, "after", delay)
			if err := retry.Sleep(ctx, delay); err != nil {
				return err
			}
		}
	}
}

// watchPods watches the pods of this node. Like the kubelet it starts when the Node object is known, because pods are
// admitted by the node's labels and taints.
func (c *Cluster) watchPods(ctx context.Context) error {
	select {
	case <-c.node.object.Received():
	case <-ctx.Done():
		return ctx.Err()
	}
	return c.pods.Run(ctx)
}

// watchHealth keeps the PodLifecycle condition up to date.
func (c *Cluster) watchHealth(ctx context.Context) error {
	for {
		problem := ""
		if err := c.node.healthy(ctx); err != nil {
			problem = err.Error()
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.conditions.Set(condition.PodLifecycle, problem)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(c.Config.Cluster.Status.UpdateFrequency):
		}
	}
}

// answers reports to the status writer whether the API server answers.
type answers struct {
	health *kubeapi.Health

	mu      sync.Mutex
	changed chan struct{}
}

func newAnswers(h *kubeapi.Health) *answers { return &answers{health: h, changed: make(chan struct{})} }

// Answers implements report.Health.
func (a *answers) Answers() (bool, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.health.State().Away(), a.changed
}

func (a *answers) run(ctx context.Context) error {
	w := a.health.Watch()
	defer w.Stop()
	for {
		if _, err := w.Next(ctx); err != nil {
			return err
		}
		a.mu.Lock()
		close(a.changed)
		a.changed = make(chan struct{})
		a.mu.Unlock()
	}
}
