package join

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/cluster/apiserver"
	"github.com/berth-run/berth/internal/cluster/cert"
	"github.com/berth-run/berth/internal/cluster/kubeapi"
	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/cluster/objects"
	"github.com/berth-run/berth/internal/cluster/offline"
	"github.com/berth-run/berth/internal/cluster/token"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/node/condition"
	"github.com/berth-run/berth/internal/node/telemetry"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/pod/steps/image/credential"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi"
	"github.com/berth-run/berth/internal/pod/steps/volume/projected"
	"github.com/berth-run/berth/internal/record/event"
)

// Options of Connect. All are required.
type Options struct {
	Config  *config.Config
	Version string
	Sources *source.Sources
	Events  *event.Recorder
	// Accepted says that the node has taken a pod on.
	Accepted func(types.UID) bool
	// Changed has what waits for an object tried again.
	Changed func(map[object.Key]bool)
	// Full ends a pod that needs one more volume than the node can attach.
	Full func(p *corev1.Pod, message string)
	// NodeChanged hears of changes of the Node object.
	NodeChanged func()
	// Moved hears that the Node object has other addresses.
	Moved func()
	// Affected has the status of a pod computed anew.
	Affected func(types.UID)
	// Boot is the id of the machine's boot.
	Boot    string
	Metrics *prometheus.Registry
	Log     *slog.Logger
}

// Cluster is what an agent is a node of. nil: it is standalone.
type Cluster struct {
	Options
	certificate *cert.Client
	api         *kubeapi.API
	pods        *apiserver.Watch
	objects     *objects.Cluster
	tokens      *token.Tokens
	puller      *token.Puller
	conditions  *condition.Table
	offline     *offline.Offline
	kept        []offline.Kept
	standsIn    atomic.Bool // what was kept, for an API server that is away
	plugins     *Plugins
	node        parts
}

// Connect makes what the agent's steps need of the cluster. It reads the
// kubeconfig and what was kept of the last time; it sends nothing.
func Connect(o Options) (*Cluster, error) {
	c := &Cluster{Options: o, conditions: condition.New()}
	cfg := o.Config
	c.certificate = cert.NewClient(cert.ClientOptions{
		Cluster: cfg.Cluster, NodeName: cfg.NodeName, Events: o.Events, Changed: func() {
			c.api.CloseConnections()
		}, Log: o.Log,
	})
	if err := telemetry.Client(o.Metrics); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	base, err := c.certificate.Load()
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	c.api, err = kubeapi.Connect(kubeapi.Options{
		Base: base, Cluster: cfg.Cluster, Version: o.Version, Certificate: c.certificate.Certificate, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	c.pods = apiserver.New(apiserver.Options{Client: c.api.Main, NodeName: cfg.NodeName, Sink: o.Sources.Cluster})
	c.objects = objects.New(objects.Config{
		Client: c.api.Main, Pods: o.Sources.Desired, Sink: o.Sources.Cluster.Objects(), Changed: c.changed,
		Strategy: objects.Strategy(cfg.Cluster.Detection), TTL: c.ttl, Sync: cfg.Kubelet.SyncFrequency.Duration,
		Log: o.Log,
	})
	c.tokens = token.New(token.FromAPI(c.api.Main), o.Log)
	c.puller = token.NewPuller(c.tokens, c.api.Main)
	keep := config.Offline{}
	if cfg.Offline != nil {
		keep = *cfg.Offline
	}
	c.offline = offline.New(offline.Options{
		Root: cfg.RootDir, All: cfg.Offline != nil, KeyFile: keep.KeyFile, MaxAge: keep.MaxAge,
		Desired: o.Sources.Desired, Objects: o.Sources.Objects, Find: record{c}.find, Accepted: o.Accepted,
		Names: c.objects.Names, Sets: record{c}.sets,
		Tokens: c.tokens.Of, Answers: record{c}.answers, Now: time.Now, Log: o.Log,
	})
	record{c}.remember()
	return c, c.plug()
}

// changed hears of objects that the table does not show.
func (c *Cluster) changed(keys map[object.Key]bool) {
	c.Options.Changed(keys)
	for key := range keys {
		if key.Kind == object.Service || key.Kind == object.ClusterTrustBundle || key.Kind == csi.KindDriver {
			c.offline.SetsChanged()
			return
		}
	}
}

// ttl is for how long objects may be kept without another look, as the control
// plane says on the Node.
func (c *Cluster) ttl() time.Duration {
	if c.node.object == nil {
		return 0
	}
	d, err := time.ParseDuration(c.node.object.Node().Annotations[corev1.ObjectTTLAnnotationKey] + "s")
	if err != nil {
		return 0
	}
	return d
}

// Client speaks to the API server with the node's rights; nil: there is none.
func (c *Cluster) Client() kubernetes.Interface {
	if c == nil {
		return nil
	}
	return c.api.Main
}

// Certificate is what the node shows to the API server; nil: there is none.
func (c *Cluster) Certificate() *cert.Client {
	if c == nil {
		return nil
	}
	return c.certificate
}

// Objects are what pods name, from manifests and from the cluster.
func (c *Cluster) Objects(table *object.Table) *object.Objects {
	if c == nil {
		return object.New(table)
	}
	return object.Joined(table, c.objects.Heard)
}

// Issuer hands out tokens and trust bundles; nil: nobody does.
func (c *Cluster) Issuer() projected.Issuer {
	if c == nil {
		return nil
	}
	return token.Issuer{Tokens: c.tokens, Bundles: c.objects}
}

// Puller has what credential providers are given of pods' service accounts; nil: nothing.
func (c *Cluster) Puller() credential.Accounts {
	if c == nil {
		return nil
	}
	return c.puller
}

// Services are those that a pod is told of; nil: none.
func (c *Cluster) Services(p *corev1.Pod) ([]*corev1.Service, error) {
	if c == nil {
		return nil, nil
	}
	return c.objects.Services(p)
}

// Object is the Node object; nil: there is none.
func (c *Cluster) Object() *nodeobject.Object {
	if c == nil {
		return nil
	}
	return c.node.object
}

// Forget drops what is remembered of a pod that is gone.
func (c *Cluster) Forget(uid types.UID) {
	if c == nil {
		return
	}
	c.tokens.Forget(uid)
	c.node.statuses.Forget(uid)
}

// PodChanged hears of a pod whose place on the node has changed.
func (c *Cluster) PodChanged(uid types.UID) {
	if c != nil {
		c.offline.Changed(uid)
	}
}
