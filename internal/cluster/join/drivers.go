package join

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/cluster/kubeapi"
	"github.com/berth-run/berth/internal/cluster/objects"
	"github.com/berth-run/berth/internal/cluster/token"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/admission"
	"github.com/berth-run/berth/internal/pod/steps/dra"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi"
)

// drivers talk to the drivers of volumes, and of devices of ResourceClaims. They implement Drivers.
type drivers struct {
	volumes *csi.Kind
	claims  *dra.Claims
}

// newDrivers makes the parts that talk to drivers. standsIn is set while the saved pods run in place of the API
// server's.
func newDrivers(o Options, api *kubeapi.API, s support, n news, standsIn *atomic.Bool) (*drivers, error) {
	volumes := csi.New(csi.Options{
		Root: o.Config.RootDir, Node: o.Config.NodeName, Client: api.Main, StandsIn: standsIn,
		Objects: object.Joined(o.Sources.Objects, s.Received), Cluster: s,
		Nodes: o.Latest.Nodes, InUseChanged: o.Latest.FactsChanged, Changed: n,
		Label: csi.FileLabel(), Health: o.Config.Cluster.VolumeHealth,
		Events: o.Events, Now: time.Now, Log: o.Log,
	})
	claims, err := dra.New(dra.Options{
		Client: api.Main, Node: o.Config.NodeName, Dir: o.Config.RootDir, Boot: o.Boot,
		Desired: o.Sources.Desired, StandsIn: standsIn, Statuses: o.Stale, Events: o.Events, Metrics: o.Metrics,
		Now: time.Now, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	if err := claims.Load(); err != nil {
		o.Log.Error("cannot read the prepared ResourceClaims of an earlier agent, continuing without them", "err", err)
	}
	return &drivers{volumes, claims}, nil
}

// Register implements Drivers.
func (x *drivers) Register(reg prometheus.Registerer) error {
	return x.volumes.Drivers().RegisterMetric(reg)
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
func (x *drivers) nodeChanged(context.Context, *corev1.Node) time.Duration {
	x.volumes.Attachments().NodeChanged()
	return 0
}

// VolumeUsage implements Drivers.
func (x *drivers) VolumeUsage(path string) (*statsapi.FsStats, bool) {
	u, ok := x.volumes.Stats(path)
	if u == nil {
		return nil, ok
	}
	return &statsapi.FsStats{
		Time: metav1.NewTime(u.At), CapacityBytes: u.Capacity, AvailableBytes: u.Available, UsedBytes: u.Used,
		Inodes: u.Inodes, InodesFree: u.InodesFree, InodesUsed: u.InodesUsed,
	}, true
}

// VolumeAbnormal implements Drivers.
func (x *drivers) VolumeAbnormal(path string) (abnormal, known bool) {
	u, _ := x.volumes.Stats(path)
	if u == nil || u.Abnormal == nil {
		return false, false
	}
	return *u.Abnormal, true
}

// Users implements Drivers.
func (x *drivers) Users() []types.UID {
	return x.claims.Users()
}

// Devices implements Drivers.
func (x *drivers) Devices(p *corev1.Pod, container string) (health []corev1.ResourceStatus, waits string) {
	waits, _ = x.claims.Waiting(p.UID)
	return x.claims.Status(p, container), waits
}

// DynamicResources implements Drivers.
func (x *drivers) DynamicResources(p *corev1.Pod, container string) []*podresourcesapi.DynamicResource {
	return x.claims.DynamicResources(p, container)
}
