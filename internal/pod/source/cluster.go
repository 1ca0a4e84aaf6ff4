package source

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/cluster"
)

// Cluster receives the pods and objects that the API server has for this node. The caller must not change a value after
// passing it. Calls may come from any goroutine, but calls for the same pod or object must come in order.
//
// If a manifest and the cluster have a pod of the same name, the manifest wins: access to this node's disk outranks the
// right to create pods. The cluster's pod is reported as a problem and runs once the name is free. For objects the
// cluster wins: its pods must get its objects.
type Cluster struct {
	// Mirrors holds the API server's copies of this node's static pods, by name. They do not run.
	Mirrors *store.Table[types.NamespacedName, *corev1.Pod]

	merge *merge
	seen  func()
}

func newCluster(m *merge) *Cluster {
	return &Cluster{Mirrors: m.claims.cluster.Mirrors, merge: m, seen: func() {}}
}

// Replace replaces all pods of the cluster. The first call also replaces the pods of Restore, and Sources.Synced waits
// for it.
func (c *Cluster) Replace(pods []*corev1.Pod) {
	at := time.Now()
	c.merge.mu.Lock()
	c.merge.claims.cluster.Replace(pods, at)
	c.merge.settleCluster(at)
	c.seen()
}

// Put adds or replaces a pod of this node.
func (c *Cluster) Put(p *corev1.Pod) {
	m, at := c.merge, time.Now()
	m.mu.Lock()
	was, wanted := m.desired.Get(p.UID)
	now := m.claims.cluster.Put(p, at)
	switch {
	case cluster.Mirror(p):
	case now != nil && wanted && was.Source == pod.SourceAPI && was.Key() == now.Key():
		m.settlePods(m.claims.putCluster()) // the name is the same, so no other pod is concerned
	default:
		m.settleCluster(at)
		return
	}
	m.mu.Unlock()
}

// Drop removes a pod that the API server does not have any more.
func (c *Cluster) Drop(p *corev1.Pod) {
	c.merge.mu.Lock()
	c.merge.claims.cluster.Drop(p)
	c.merge.settleCluster(time.Now())
}

// Restore adds the pods that the API server had when it was last reachable. The first Replace replaces them; after
// that, Restore does nothing.
func (c *Cluster) Restore(pods []*corev1.Pod) {
	m, at := c.merge, time.Now()
	m.mu.Lock()
	if !m.claims.cluster.Restore(pods, at) {
		m.mu.Unlock()
		return
	}
	m.settleCluster(at)
}

// Objects returns the receiver of the cluster's objects.
func (c *Cluster) Objects() Objects { return Objects{c.merge} }

// Objects receives the cluster's objects.
type Objects struct{ merge *merge }

// Put adds or replaces an object. v has the API type of its kind.
func (o Objects) Put(v object.Value) { o.merge.setObject(object.KeyOf(v), v) }

// Drop removes an object that the cluster does not have or that no pod of the cluster names any more.
func (o Objects) Drop(key object.Key) { o.merge.setObject(key, nil) }

// setObject sets the cluster's object for key, or removes it if v is nil.
func (m *merge) setObject(key object.Key, v object.Value) {
	m.mu.Lock()
	m.claims.setObject(key, v)
	m.settleObject(key)
	if key.Kind == object.RuntimeClass || m.claims.supplied(key) {
		m.settleCluster(time.Now()) // it may change pods, or the problems of a manifest
		return
	}
	m.mu.Unlock()
}
