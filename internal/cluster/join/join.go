package join

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cluster/apiserver"
	"github.com/berth-run/berth/internal/cluster/cert"
	"github.com/berth-run/berth/internal/cluster/kubeapi"
	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/cluster/objects"
	"github.com/berth-run/berth/internal/cluster/podcert"
	"github.com/berth-run/berth/internal/cluster/token"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/node/condition"
	"github.com/berth-run/berth/internal/node/telemetry"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/pod/status"
	"github.com/berth-run/berth/internal/pod/steps/image/credential"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/driver"
	"github.com/berth-run/berth/internal/pod/steps/volume/projected"
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

// Cluster is the agent's membership in a cluster. A nil Cluster is a standalone agent.
type Cluster struct {
	o           Options
	certificate *cert.Client
	api         *kubeapi.API
	// nodes has the Node object, by name, once it was received. nodeobject.Object writes it.
	nodes *store.Table[string, *corev1.Node]
	// factsChanged wakes the part that reports the node's status.
	factsChanged wake.Signal
	pods         *apiserver.Watch
	objects      *objects.Cluster
	tokens       *token.Tokens
	puller       *token.Puller
	noBundles    bool                  // the node projects no trust bundles
	certificates *podcert.Certificates // nil unless the node requests certificates of pods
	conditions   *condition.Table
	plugins      *Plugins
	record       *record
	reports      *reports // nil before Complete
}

// Connect makes what the agent's steps need from the cluster. It reads the kubeconfig and the pods saved by an
// earlier agent. It sends nothing.
func Connect(o Options) (*Cluster, error) {
	c := &Cluster{
		o: o, conditions: o.Conditions, nodes: store.New[string, *corev1.Node](), factsChanged: wake.New(),
	}
	cfg := o.Config
	c.certificate = cert.NewClient(cert.ClientOptions{
		Cluster: cfg.Cluster, NodeName: cfg.NodeName, Events: o.Events, Log: o.Log,
	})
	if err := telemetry.Client(o.Metrics); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	base, err := c.certificate.Load()
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	c.api, err = kubeapi.Connect(kubeapi.Options{
		Base: base, Cluster: cfg.Cluster, Version: o.Version, Identity: c.certificate, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	c.pods = apiserver.New(apiserver.Options{Client: c.api.Main, NodeName: cfg.NodeName, Sink: o.Sources.Cluster})
	c.objects = objects.New(objects.Config{
		Client: c.api.Main, Pods: o.Sources.Desired, Sink: o.Sources.Cluster.Objects(), Changed: objectChanges{c},
		Strategy: objects.Strategy(cfg.Cluster.Detection), Nodes: c.nodes, NodeName: cfg.NodeName,
		Sync: cfg.Kubelet.SyncFrequency.Duration, OwnReferences: cfg.Disabled.OwnReferences,
		Certificates: cfg.Cluster.PodCertificates, Log: o.Log,
	})
	c.noBundles = cfg.Disabled.TrustBundles
	c.tokens = token.New(token.FromAPI(c.api.Main), o.Log)
	c.puller = token.NewPuller(c.tokens, c.api.Main)
	if cfg.Cluster.PodCertificates {
		c.certificates = podcert.New(podcert.Config{
			Client: c.api.Main, Requests: c.objects, Accounts: c.puller, Nodes: c.nodes, NodeName: cfg.NodeName,
			Changed: o.Changed, Events: o.Events, Log: o.Log,
		})
	}
	standsIn := &atomic.Bool{}
	if c.plugins, err = newPlugins(c, standsIn); err != nil {
		return nil, err
	}
	c.record = newRecord(c, standsIn)
	return c, nil
}

// objectChanges passes on changes of objects that the object table does not show: to the pods that wait for them, to
// the part that requests certificates, and to the part that saves pods for a boot without an API server.
type objectChanges struct{ *Cluster }

// AddAll does not block.
func (c objectChanges) AddAll(keys map[object.Key]bool) {
	c.o.Changed.AddAll(keys)
	if c.certificates != nil && keys[object.CertificateRequests()] {
		c.certificates.Look()
	}
	for key := range keys {
		if key.Kind == object.Service || key.Kind == object.ClusterTrustBundle || key.Kind == driver.KindDriver {
			c.record.offline.SetsChanged()
			return
		}
	}
}

// Client returns a client with the node's rights. It is nil for a standalone agent.
func (c *Cluster) Client() kubernetes.Interface {
	if c == nil {
		return nil
	}
	return c.api.Main
}

// Reviews returns clients that ask who may use the node's own server, for tokens and for rights. They are nil for a
// standalone agent.
func (c *Cluster) Reviews() (tokens, rights kubernetes.Interface) {
	if c == nil {
		return nil, nil
	}
	return c.api.TokenReviews, c.api.AccessReviews
}

// Certificate returns the client certificate of the node. It is nil for a standalone agent.
func (c *Cluster) Certificate() *cert.Client {
	if c == nil {
		return nil
	}
	return c.certificate
}

// Objects returns the objects that pods name, from manifests and from the cluster.
func (c *Cluster) Objects(table *object.Table) *object.Objects {
	if c == nil {
		return object.New(table)
	}
	return object.Joined(table, c.objects.Received)
}

// Issuer issues service account tokens, and returns trust bundles and certificates of pods. It is nil for a standalone
// agent.
func (c *Cluster) Issuer() projected.Issuer {
	if c == nil {
		return nil
	}
	issuer := token.Issuer{Tokens: c.tokens, Bundles: c.objects, NoBundles: c.noBundles}
	if c.certificates != nil {
		issuer.Certificates = c.certificates
	}
	return issuer
}

// Puller returns the service account data that credential providers receive. It is nil for a standalone agent.
func (c *Cluster) Puller() credential.Accounts {
	if c == nil {
		return nil
	}
	return c.puller
}

// Services returns the services that a pod's environment lists. A standalone agent has none.
func (c *Cluster) Services(p *corev1.Pod) ([]*corev1.Service, error) {
	if c == nil {
		return nil, nil
	}
	return c.objects.Services(p)
}

// Object returns the Node object. It is nil for a standalone agent, and before Complete.
func (c *Cluster) Object() *nodeobject.Object {
	if c == nil || c.reports == nil {
		return nil
	}
	return c.reports.object
}

// ConfirmLabels reads the Node object from the API server soon. It returns at once.
func (c *Cluster) ConfirmLabels() { c.Object().Confirm() }

// Forget drops the tokens, the certificates and the status of a pod that has ended.
func (c *Cluster) Forget(uid types.UID) {
	if c == nil {
		return
	}
	c.tokens.Forget(uid)
	if c.certificates != nil {
		c.certificates.Forget(uid)
	}
	c.reports.statuses.Forget(uid)
}

// PodChanged must be called when a pod was admitted or removed, so that the saved pods are updated.
func (c *Cluster) PodChanged(uid types.UID) {
	if c != nil {
		c.record.offline.Changed(uid)
	}
}
