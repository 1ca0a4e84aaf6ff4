package objects

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeclient "k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// Strategy is how the node detects changes of a ConfigMap or Secret (configMapAndSecretChangeDetectionStrategy of
// KubeletConfiguration v1beta1).
type Strategy string

// The strategies, in the kubelet's words.
const (
	Watch Strategy = "Watch" // at once, by a watch of each object
	Cache Strategy = "Cache" // by a read each TTL, but not more often than each syncFrequency
	Get   Strategy = "Get"   // by a read each syncFrequency
)

// Sink receives the objects of the API server. An object has the API type of its kind and is not changed after Put.
type Sink interface {
	Put(object.Value)
	Drop(object.Key)
}

type pods interface {
	Watch() *store.Watcher[types.UID, *pod.Pod]
}

type changes interface {
	// AddAll adds the keys of objects that have changed. It does not block.
	AddAll(map[object.Key]bool)
}

// Config of a Cluster. Fields are required unless they say otherwise.
type Config struct {
	Client kubeclient.Interface
	// Pods are the desired pods of this node.
	Pods pods
	Sink Sink
	// Changed collects the changes that the table does not show: an object does not exist, or services or trust bundles
	// have changed.
	Changed changes
	// Strategy for ConfigMaps and Secrets; empty: Watch.
	Strategy Strategy
	// Nodes has the Node object of this node, named NodeName. Its annotation node.alpha.kubernetes.io/ttl is the time
	// in seconds between two reads with Cache. Without the object or the annotation, the time is a minute. Nodes is
	// needed only with Cache, NodeName also for certificate requests.
	Nodes    *store.Table[string, *corev1.Node]
	NodeName string
	// Sync is the time between two reads with Get, and the shortest one with Cache (syncFrequency); 0: a minute.
	Sync time.Duration
	// OwnReferences makes pods of manifests get the ConfigMaps and Secrets of the cluster.
	OwnReferences bool
	// Certificates reads the PodCertificateRequests of this node for pods that project a certificate.
	Certificates bool
	Log          *slog.Logger
}

// Cluster holds the objects received from the API server. Make it with New, then call Run.
type Cluster struct {
	cfg Config
	wg  sync.WaitGroup

	mu sync.Mutex
	// spawn starts a follower that ends with Run.
	spawn func(*follower)
	// wanted lists the keys that each user needs. A user is a pod (by UID) or an object (by key).
	wanted    map[any][]object.Key
	users     map[object.Key]int
	followers map[object.Key]*follower
	received  map[object.Key]bool
	trouble   map[object.Key]error // of objects whose last read failed
	// sets are the objects of collections, by member.
	sets map[object.Key]map[string]object.Value
	// local counts the pods of manifests that name a key.
	local map[object.Key]int
	// kept holds the saved objects of each key. An empty list means that there was none. It is nil after EndRestore.
	kept map[object.Key][]object.Value
	// unreported are the keys for the next call of Config.Changed, which is made without mu.
	unreported map[object.Key]bool
}

// New makes a Cluster that has received nothing.
func New(c Config) *Cluster {
	if c.Strategy == "" {
		c.Strategy = Watch
	}
	return &Cluster{
		cfg: c, wanted: map[any][]object.Key{}, users: map[object.Key]int{}, followers: map[object.Key]*follower{},
		received: map[object.Key]bool{},
		trouble:  map[object.Key]error{}, sets: map[object.Key]map[string]object.Value{}, local: map[object.Key]int{},
	}
}

// Received reports whether the API server has answered for an object, including that it does not exist. Objects that
// only pods of manifests name count as received, because the API server is not asked for them. It has the signature
// that object.Joined needs.
func (c *Cluster) Received(key object.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known(key) || c.users[key] == 0 && c.local[key] > 0
}

// known reports whether there is an answer for a key: the API server's, or a saved one while it is away.
func (c *Cluster) known(key object.Key) bool {
	_, kept := c.kept[key]
	return kept || c.received[key]
}

// report adds a key to the next call of Config.Changed.
func (c *Cluster) report(key object.Key) {
	if c.unreported == nil {
		c.unreported = map[object.Key]bool{}
	}
	c.unreported[key] = true
}

// unlock releases mu and reports the changes.
func (c *Cluster) unlock() {
	unreported := c.unreported
	c.unreported = nil
	c.mu.Unlock()
	if len(unreported) > 0 {
		c.cfg.Changed.AddAll(unreported)
	}
}

// Trouble returns why the last read of an object failed, or nil.
func (c *Cluster) Trouble(key object.Key) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trouble[key]
}

// Names returns the objects of the table that a pod needs, each once: the objects that it names, and the objects known
// so far that these refer to.
func (c *Cluster) Names(p *corev1.Pod) []object.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := Named(p)
	for i := 0; i < len(keys); i++ { //nolint:intrange // keys grows
		for _, key := range c.wanted[keys[i]] {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// Refresh reads unwatched objects again, such as a claim whose volume was resized.
func (c *Cluster) Refresh(keys ...object.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if f := c.followers[key]; f != nil {
			f.refresh()
		}
	}
}

// Services returns the services for a pod's environment variables, ordered by namespace and name: all services of its
// namespace if it links to services, and default/kubernetes. The error is an *object.Unknown. A pod of a manifest does
// not wait for unknown services, as with the kubelet.
func (c *Cluster) Services(p *corev1.Pod) ([]*corev1.Service, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*corev1.Service
	for _, key := range serviceKeys(p) {
		if !c.known(key) && !fromManifest(p) {
			return nil, &object.Unknown{Key: key}
		}
		for _, v := range c.sets[key] {
			if s, ok := v.(*corev1.Service); ok {
				found = append(found, s)
			}
		}
	}
	slices.SortFunc(found, func(a, b *corev1.Service) int {
		return object.Key{Namespace: a.Namespace, Name: a.Name}.Compare(object.Key{Namespace: b.Namespace,
			Name: b.Name})
	})
	return found, nil
}

// Bundles returns all ClusterTrustBundles. The error is an *object.Unknown until they were read, joined with the error
// of the last read.
func (c *Cluster) Bundles() ([]*certificatesv1beta1.ClusterTrustBundle, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known(object.Bundles()) {
		unknown := &object.Unknown{Key: object.Bundles()}
		if err := c.trouble[object.Bundles()]; err != nil {
			return nil, &object.Lacking{Key: object.Bundles(), Err: fmt.Errorf("%w: %w", unknown, err)}
		}
		return nil, unknown
	}
	var found []*certificatesv1beta1.ClusterTrustBundle
	for _, v := range c.sets[object.Bundles()] {
		if b, ok := v.(*certificatesv1beta1.ClusterTrustBundle); ok {
			found = append(found, b)
		}
	}
	return found, nil
}

// CertificateRequest returns a PodCertificateRequest of this node. It is nil if the API server does not list it, or has
// not answered yet.
func (c *Cluster) CertificateRequest(namespace, name string) *certificatesv1beta1.PodCertificateRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, _ := c.sets[object.CertificateRequests()][namespace+"/"+name].(*certificatesv1beta1.PodCertificateRequest)
	return found
}

// fromManifest reports whether a pod comes from a manifest. Pods of the API server have no annotation of their source.
func fromManifest(p *corev1.Pod) bool {
	from := pod.Source(p.Annotations[pod.AnnotationConfigSource])
	return from != "" && from != pod.SourceAPI
}
