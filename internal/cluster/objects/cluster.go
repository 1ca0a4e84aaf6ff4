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

// Strategy says how a change of a ConfigMap or Secret is learnt
// (configMapAndSecretChangeDetectionStrategy of KubeletConfiguration v1beta1).
type Strategy string

// The strategies, in the kubelet's words.
const (
	Watch Strategy = "Watch" // at once, by a watch of each object
	Cache Strategy = "Cache" // it is read again each TTL
	Get   Strategy = "Get"   // it is read again each syncFrequency
)

// Sink takes what the API server tells. An object is never changed after it was
// put, and is of the API type of its kind.
type Sink interface {
	Put(object.Value)
	Drop(object.Key)
}

type pods interface {
	Watch() *store.Watcher[types.UID, *pod.Pod]
}

// Config of a Cluster. Fields are required unless they say otherwise.
type Config struct {
	Client kubeclient.Interface
	// Pods are those that are to run on this node.
	Pods pods
	Sink Sink
	// Changed is told of what the table does not show: that an object is not
	// there, that services or trust bundles are others. It must not block.
	Changed func(map[object.Key]bool)
	// Strategy for ConfigMaps and Secrets; empty: Watch.
	Strategy Strategy
	// TTL between two reads with Cache, from the annotation
	// node.alpha.kubernetes.io/ttl of the node; nil, or 0 from it: a minute.
	TTL func() time.Duration
	// Sync is the time between two reads with Get (syncFrequency); 0: a minute.
	Sync time.Duration
	Log  *slog.Logger
}

// Cluster is what the API server has told. Make it with New, then Run it.
type Cluster struct {
	cfg Config
	wg  sync.WaitGroup

	mu sync.Mutex
	// spawn runs a follower for as long as Run runs.
	spawn func(*follower)
	// wanted is who names what: a pod by its UID, a claim by its key.
	wanted    map[any][]object.Key
	users     map[object.Key]int
	followers map[object.Key]*follower
	heard     map[object.Key]bool
	trouble   map[object.Key]error // of what could not be read at the last try
	// sets are the objects of collections, by their names.
	sets map[object.Key]map[string]object.Value
	// local are keys that pods of manifests name.
	local map[object.Key]int
	// kept is what there was of a key when the API server was last heard, none
	// included; nil once it has told what it wants.
	kept map[object.Key][]object.Value
	// news are for Config.Changed, once mu is free.
	news map[object.Key]bool
}

// New makes a Cluster that has heard nothing.
func New(c Config) *Cluster {
	if c.Strategy == "" {
		c.Strategy = Watch
	}
	return &Cluster{
		cfg: c, wanted: map[any][]object.Key{}, users: map[object.Key]int{}, followers: map[object.Key]*follower{},
		heard:   map[object.Key]bool{},
		trouble: map[object.Key]error{}, sets: map[object.Key]map[string]object.Value{}, local: map[object.Key]int{},
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

// known says that there is an answer about a key: the API server's, or the one of
// before while it is away.
func (c *Cluster) known(key object.Key) bool {
	_, kept := c.kept[key]
	return kept || c.heard[key]
}

// tell notes what the table does not show.
func (c *Cluster) tell(key object.Key) {
	if c.news == nil {
		c.news = map[object.Key]bool{}
	}
	c.news[key] = true
}

// unlock ends a change, and tells of what it noted.
func (c *Cluster) unlock() {
	news := c.news
	c.news = nil
	c.mu.Unlock()
	if len(news) > 0 {
		c.cfg.Changed(news)
	}
}

// Trouble is why an object could not be read at the last try; nil for none.
func (c *Cluster) Trouble(key object.Key) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trouble[key]
}

// Names are the objects of the table that a pod needs, each once: those that it names,
// and those that they are known to lead to.
func (c *Cluster) Names(p *corev1.Pod) []object.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := Named(p)
	for i := 0; i < len(keys); i++ { //nolint:intrange // it grows
		for _, key := range c.wanted[keys[i]] {
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// Refresh has objects read again that are not watched, such as a claim whose
// volume was made larger.
func (c *Cluster) Refresh(keys ...object.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if f := c.followers[key]; f != nil {
			f.lookAgain()
		}
	}
}

// Services are the services whose variables a pod may have: those of its
// namespace if it links to services, and default/kubernetes; in the order of
// namespaces and names. The error is an *object.Unknown; a pod of a manifest does
// not wait, as for the kubelet.
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

// Bundles are all ClusterTrustBundles. The error is an *object.Unknown until they
// were read, joined with why that failed.
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

// fromManifest says that a pod is not the API server's, which marks none.
func fromManifest(p *corev1.Pod) bool {
	from := pod.Source(p.Annotations[pod.AnnotationConfigSource])
	return from != "" && from != pod.SourceAPI
}
