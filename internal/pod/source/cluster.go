package source

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/cluster"
)

// Cluster takes what the API server has for this node. What is handed in must not
// be changed afterwards; calls may come from any goroutine, those for the same pod
// or object in their order.
//
// The name of a pod is a manifest's before it is the cluster's: who writes on this
// node's disk has a say that who may create pods has not. A pod of the cluster that
// finds its name taken is a problem and not run until the name is free. With
// objects it is the other way round: pods of the cluster get what the cluster says.
type Cluster struct {
	// Mirrors are the API server's copies of static pods of this node, by name.
	// They are not run.
	Mirrors *store.Table[types.NamespacedName, *corev1.Pod]

	merge *merge
	seen  func()
}

func newCluster(m *merge) *Cluster {
	return &Cluster{Mirrors: m.cluster.Mirrors, merge: m, seen: func() {}}
}

// Replace makes pods all those that the API server has for this node. The first
// call ends what Restore gave, and is what Sources.Synced waits for.
func (c *Cluster) Replace(pods []*corev1.Pod) {
	at := time.Now()
	c.merge.mu.Lock()
	c.merge.cluster.Replace(pods, at)
	c.merge.settle(cluster.Origin, at)
	c.seen()
}

// Put takes a pod of this node that the API server has added or changed.
func (c *Cluster) Put(p *corev1.Pod) {
	m, at := c.merge, time.Now()
	m.mu.Lock()
	was, wanted := m.desired.Get(p.UID)
	now := m.cluster.Put(p, at)
	switch {
	case cluster.Mirror(p):
	case now != nil && wanted && was.Source == pod.SourceAPI && was.Key() == now.Key():
		if was != now {
			m.desired.Put(now.UID, now) // nobody's name has changed
		}
	default:
		m.settle(cluster.Origin, at)
		return
	}
	m.mu.Unlock()
}

// Drop forgets a pod that the API server does not have any more.
func (c *Cluster) Drop(p *corev1.Pod) {
	c.merge.mu.Lock()
	c.merge.cluster.Drop(p)
	c.merge.settle(cluster.Origin, time.Now())
}

// Restore gives pods that were the cluster's when it was last heard, until it says
// better: until Replace. After that it does nothing.
func (c *Cluster) Restore(pods []*corev1.Pod) {
	m, at := c.merge, time.Now()
	m.mu.Lock()
	if !m.cluster.Restore(pods, at) {
		m.mu.Unlock()
		return
	}
	m.settle(cluster.Origin, at)
}

// Objects takes the objects of the cluster.
func (c *Cluster) Objects() Objects { return Objects{c.merge} }

// Objects puts what the cluster has into the table of objects.
type Objects struct{ merge *merge }

// Put takes an object of the API type of its kind.
func (o Objects) Put(v object.Value) { o.merge.setObject(object.KeyOf(v), v) }

// Drop says that the cluster does not have an object, or that no pod of the cluster
// names it any more.
func (o Objects) Drop(key object.Key) { o.merge.setObject(key, nil) }

// setObject makes v the cluster's object of that name; nil: it has none.
func (m *merge) setObject(key object.Key, v runtime.Object) {
	m.mu.Lock()
	m.cluster.SetObject(key, v)
	switch {
	case key.Kind == object.RuntimeClass || m.supplied(key):
		m.settle(cluster.Origin, time.Now()) // pods or manifests are concerned
		return
	case v != nil:
		m.hold(key, v)
	default:
		m.objects.Delete(key)
	}
	m.mu.Unlock()
}

// refusals are the pods of the cluster that cannot be run here, as problems.
func (m *merge) refusals() (problems []Problem) {
	for _, r := range m.cluster.Refusals() {
		problems = append(problems,
			Problem{Origin: cluster.Origin, Pod: r.Name, Err: reason.Wrap(reason.FailedValidation, r.Err)})
	}
	return problems
}
