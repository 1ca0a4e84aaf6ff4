package join

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/cluster/objects"
	"github.com/berth-run/berth/internal/cluster/token"
	"github.com/berth-run/berth/internal/node/plugin"
	"github.com/berth-run/berth/internal/pod/admission"
	"github.com/berth-run/berth/internal/pod/steps/container"
	"github.com/berth-run/berth/internal/pod/steps/dra"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi"
	"github.com/berth-run/berth/internal/pod/worker"
)

// Plugins are the drivers that only a node of a cluster has: for volumes, and for devices of ResourceClaims. It is
// nil for a standalone agent.
type Plugins struct {
	volumes *csi.Kind
	claims  *dra.Claims
	// attaches: a controller of the cluster attaches volumes.
	attaches bool
}

// newPlugins makes the parts that talk to drivers. standsIn is set while the saved pods run in place of the API
// server's.
func newPlugins(c *Cluster, standsIn *atomic.Bool) (*Plugins, error) {
	o := c.o
	x := &Plugins{attaches: o.Config.Cluster.AttachDetach}
	x.volumes = csi.New(csi.Options{
		Root: o.Config.RootDir, Node: o.Config.NodeName, Client: c.api.Main, StandsIn: standsIn,
		Objects: c.Objects(o.Sources.Objects),
		Cluster: support{Cluster: c.objects, tokens: c.tokens, rejecter: o.Rejecter},
		Nodes:   c.nodes, InUseChanged: c.factsChanged, Changed: objectChanges{c},
		Label: csi.FileLabel(), Health: o.Config.Cluster.VolumeHealth,
		Events: o.Events, Now: time.Now, Log: o.Log,
	})
	var err error
	x.claims, err = dra.New(dra.Options{
		Client: c.api.Main, Node: o.Config.NodeName, Dir: o.Config.RootDir, Boot: o.Boot,
		Desired: o.Sources.Desired, StandsIn: standsIn, Statuses: o.Stale, Events: o.Events, Metrics: o.Metrics,
		Now: time.Now, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	if err := x.claims.Load(); err != nil {
		o.Log.Error("cannot read the prepared ResourceClaims of an earlier agent, continuing without them", "err", err)
	}
	return x, nil
}

// Register registers the metric of the calls of CSI drivers. Call it once.
func (x *Plugins) Register(reg prometheus.Registerer) error {
	if x == nil {
		return nil
	}
	return x.volumes.Drivers().RegisterMetric(reg)
}

// Watcher finds the plugins of a node, including those that need no cluster.
func (x *Plugins) Watcher(root string, devices plugin.Handler, log *slog.Logger) *plugin.Watcher {
	handlers := map[string]plugin.Handler{plugin.TypeDevice: devices}
	if x != nil {
		handlers[plugin.TypeCSI] = x.volumes.Drivers()
		handlers[plugin.TypeDRA] = x.claims.Drivers()
	}
	return plugin.New(plugin.Options{Dir: filepath.Join(root, "plugins_registry"), Handlers: handlers, Log: log})
}

// Plugins returns the drivers of this node.
func (c *Cluster) Plugins() *Plugins {
	if c == nil {
		return nil
	}
	return c.plugins
}

// support gives volumes of drivers access to the API server: to objects, tokens, and the rejection of a pod.
type support struct {
	*objects.Cluster
	tokens   *token.Tokens
	rejecter Rejecter
}

// NodeFull rejects a pod.
func (s support) NodeFull(p *corev1.Pod, message string) {
	s.rejecter.Reject(p, admission.VolumeAttachmentLimitExceeded, message)
}

// Token returns a token of the pod's service account for one audience.
func (s support) Token(ctx context.Context, p *corev1.Pod, audience string, life time.Duration) (string, time.Time,
	error) {
	r := token.Request{Namespace: p.Namespace, ServiceAccount: p.Spec.ServiceAccountName, Life: life, PodName: p.Name,
		PodUID: p.UID}
	if audience != "" {
		r.Audiences = []string{audience}
	}
	t, err := s.tokens.Token(ctx, r)
	return t.Value, t.Expires, err
}

// nodeChanged notifies the volumes of a change of the Node object, which lists the attached volumes.
func (x *Plugins) nodeChanged(context.Context, *corev1.Node) time.Duration {
	x.volumes.Attachments().NodeChanged()
	return 0
}

// Kinds returns the kinds of volumes that only a cluster has. A standalone agent gets the kind that unmounts volumes
// left below root.
func (x *Plugins) Kinds(root string) []volume.Kind {
	if x == nil {
		return []volume.Kind{csi.Left{Root: root}}
	}
	return []volume.Kind{x.volumes}
}

// Attachments returns the volumes that a controller of the cluster attaches. It is nil for an agent that attaches
// volumes itself (enableControllerAttachDetach: false), and for a standalone agent.
func (x *Plugins) Attachments() volume.Attachments {
	if x == nil || !x.attaches {
		return nil
	}
	return x.volumes.Attachments()
}

// Steps returns the steps of a pod's life that only a cluster has. The sandbox waits for them.
func (x *Plugins) Steps() []worker.Step {
	if x == nil {
		return nil
	}
	return []worker.Step{x.claims.Step()}
}

// Lifecycle returns the hooks into the life of each container that only a cluster has.
func (x *Plugins) Lifecycle() []container.Lifecycle {
	if x == nil {
		return nil
	}
	return []container.Lifecycle{{PreCreate: x.claims.PreCreate}}
}

// VolumeUsage returns the usage that a driver reports for the volume at a path: see stats.Options.Drivers.
func (x *Plugins) VolumeUsage(path string) (*statsapi.FsStats, bool) {
	if x == nil {
		return nil, false
	}
	u, ok := x.volumes.Stats(path)
	if u == nil {
		return nil, ok
	}
	return &statsapi.FsStats{
		Time: metav1.NewTime(u.At), CapacityBytes: u.Capacity, AvailableBytes: u.Available, UsedBytes: u.Used,
		Inodes: u.Inodes, InodesFree: u.InodesFree, InodesUsed: u.InodesUsed,
	}, true
}

// VolumeAbnormal reports whether the driver of the volume at a path says that the volume is in an abnormal condition.
// known is false if the driver reports no condition.
func (x *Plugins) VolumeAbnormal(path string) (abnormal, known bool) {
	if x == nil {
		return false, false
	}
	u, _ := x.volumes.Stats(path)
	if u == nil || u.Abnormal == nil {
		return false, false
	}
	return *u.Abnormal, true
}

// Users returns the pods with prepared ResourceClaims.
func (x *Plugins) Users() []types.UID {
	if x == nil {
		return nil
	}
	return x.claims.Users()
}

// Devices returns the health of the devices that a container has by claims, and what its pod waits for.
func (x *Plugins) Devices(p *corev1.Pod, container string) (health []corev1.ResourceStatus, waits string) {
	if x == nil {
		return nil, ""
	}
	waits, _ = x.claims.Waiting(p.UID)
	return x.claims.Status(p, container), waits
}

// DynamicResources returns the devices that a container has by claims, as the PodResources API lists them.
func (x *Plugins) DynamicResources(p *corev1.Pod, container string) []*podresourcesapi.DynamicResource {
	if x == nil {
		return nil
	}
	return x.claims.DynamicResources(p, container)
}
