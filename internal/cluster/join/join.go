package join

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cluster/cert"
	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/node/condition"
	"github.com/berth-run/berth/internal/node/plugin"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/pod/status"
	"github.com/berth-run/berth/internal/pod/steps/container"
	"github.com/berth-run/berth/internal/pod/steps/image/credential"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/projected"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
)

// Options of Connect. All are required.
type Options struct {
	Config  *config.Config
	Version string
	Sources *source.Sources
	Events  *event.Recorder
	Fleet   Fleet
	// Changed collects the objects that pods and volumes wait for, and that have changed.
	Changed *wake.Set[object.Key]
	// Rejecter rejects a pod that needs more volumes than the node can attach.
	Rejecter Rejecter
	// Stale collects the pods whose status must be published again.
	Stale *status.Stale
	// Conditions are the conditions of this node.
	Conditions *condition.Table
	// Latest receives the Node object.
	Latest *nodeobject.Latest
	// Boot is the machine's boot ID.
	Boot    string
	Metrics *prometheus.Registry
	Log     *slog.Logger
}

// Fleet is the set of this node's pods.
type Fleet interface {
	// Working reports whether the node has admitted a pod.
	Working(types.UID) bool
	// Reconsider repeats admission for the pods that wait for it, after a change of the Node object.
	Reconsider()
}

// Rejecter ends pods that were admitted but lack something they need.
type Rejecter interface {
	Reject(p *corev1.Pod, why, message string)
}

// Membership leads an agent to a cluster, or to none.
type Membership interface {
	// Access returns the parts of the cluster that the agent's other parts use.
	Access() Access
	// Reports makes the parts that report this node and its pods to the cluster. Call it once.
	Reports(Node) Reports
}

// Connect returns the membership that the configuration names. It reads the kubeconfig and the pods saved by an earlier
// agent. It sends nothing.
func Connect(o Options) (Membership, error) {
	if o.Config.Cluster == nil {
		return alone{o}, nil
	}
	return connect(o)
}

// Access has the parts of a cluster that an agent's other parts use. On a standalone node only Objects, Kinds and
// Drivers are set.
type Access struct {
	// Client has the node's rights. TokenReviews and AccessReviews ask who may use the node's own server.
	Client, TokenReviews, AccessReviews kubernetes.Interface
	// Certificate is the client certificate of the node.
	Certificate *cert.Client
	// AddressesChanged receives after the addresses of the Node object have changed.
	AddressesChanged <-chan struct{}
	// Objects are the objects that pods name, from manifests and from the cluster.
	Objects *object.Objects
	// Services finds the services that a pod's environment lists.
	Services Services
	// Issuer issues service account tokens, and returns trust bundles and certificates of pods.
	Issuer projected.Issuer
	// Accounts is the service account data that credential providers receive.
	Accounts credential.Accounts
	// Conditions are the node's, if a cluster shows them. Monitoring is how to monitor the container runtime for them.
	Conditions *condition.Table
	Monitoring cri.MonitorOptions
	// Watchers must be called when a pod has been admitted or removed.
	Watchers []fleet.Watcher
	Plugins
}

// Plugins are the drivers that only a node of a cluster has: for volumes, and for devices of ResourceClaims.
type Plugins struct {
	// Handlers talk to the plugins of each type that have registered.
	Handlers map[string]plugin.Handler
	// Kinds are the kinds of volumes that drivers serve. A standalone agent has the kind that unmounts volumes left
	// from a cluster.
	Kinds []volume.Kind
	// Attachments has the volumes that a controller of the cluster attaches. It is nil for an agent that attaches
	// volumes itself (enableControllerAttachDetach: false).
	Attachments volume.Attachments
	// Steps are steps of a pod's life. The sandbox waits for them.
	Steps []worker.Step
	// Lifecycle has the hooks into the life of each container.
	Lifecycle []container.Lifecycle
	Drivers   Drivers
}

// Services finds services.
type Services interface {
	// Services returns the services that a pod's environment lists.
	Services(p *corev1.Pod) ([]*corev1.Service, error)
}

// Drivers answers about the volumes and devices of drivers.
type Drivers interface {
	// Register registers the metric of the calls of CSI drivers. Call it once.
	Register(prometheus.Registerer) error
	// VolumeUsage returns the usage that a driver reports for the volume at a path: see stats.Options.Drivers.
	VolumeUsage(path string) (*statsapi.FsStats, bool)
	// VolumeAbnormal reports whether the driver of the volume at a path says that the volume is in an abnormal
	// condition. known is false if the driver reports no condition.
	VolumeAbnormal(path string) (abnormal, known bool)
	// Users returns the pods with prepared ResourceClaims.
	Users() []types.UID
	// Devices returns the health of the devices that a container has by claims, and what its pod waits for.
	Devices(p *corev1.Pod, container string) (health []corev1.ResourceStatus, waits string)
	// DynamicResources returns the devices that a container has by claims, as the PodResources API lists them.
	DynamicResources(p *corev1.Pod, container string) []*podresourcesapi.DynamicResource
}

// Reports are the parts that report this node and its pods.
type Reports interface {
	// Report implements status.Reporter: it queues the status of a pod for the API server.
	Report(fleet.Member, corev1.PodStatus)
	// Flush sends the queued statuses to the API server, starting with the statuses of ended pods.
	Flush(context.Context) error
	// Forget drops the tokens, the certificates and the status of a pod that has ended.
	Forget(types.UID)
	// Register registers the metrics of the parts. Call it once.
	Register(prometheus.Registerer) error
	// Run starts all parts, and returns when ctx ends. It sends nothing to the API server before there is a client
	// certificate.
	Run(context.Context) error
}
