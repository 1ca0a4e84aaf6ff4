package cluster

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// Origin names the place that the pods of the API come from.
const Origin = "the API server"

// Set is what the API server has. It is for one goroutine at a time, but for
// Mirrors.
type Set struct {
	// Mirrors are the copies of static pods, by name.
	Mirrors *store.Table[types.NamespacedName, *corev1.Pod]

	node    string
	synced  bool
	pods    map[types.UID]*pod.Pod
	refused map[types.UID]Refusal
	objects map[object.Key]runtime.Object
}

// Refusal is a pod that cannot be run here, and why.
type Refusal struct {
	Name types.NamespacedName
	Err  error
}

// New returns an empty set.
func New(node string) *Set {
	return &Set{
		Mirrors: store.New[types.NamespacedName, *corev1.Pod](), node: node,
		pods: map[types.UID]*pod.Pod{}, refused: map[types.UID]Refusal{},
		objects: map[object.Key]runtime.Object{},
	}
}

// Replace makes pods all that the API server has.
func (s *Set) Replace(pods []*corev1.Pod, at time.Time) {
	was := s.pods
	s.synced = true
	s.pods, s.refused = map[types.UID]*pod.Pod{}, map[types.UID]Refusal{}
	mirrors := map[types.NamespacedName]bool{}
	for _, p := range pods {
		if Mirror(p) {
			mirrors[NameOf(p)] = true
			s.putMirror(p)
		} else {
			s.take(p, was[p.UID], at)
		}
	}
	for name := range s.Mirrors.Snapshot().All() {
		if !mirrors[name] {
			s.Mirrors.Delete(name)
		}
	}
}

// Put takes a pod that was added or changed. It returns it as one to run: the same
// value as before if nothing changed, nil if it is not one.
func (s *Set) Put(p *corev1.Pod, at time.Time) *pod.Pod {
	if Mirror(p) {
		s.putMirror(p)
		return nil
	}
	return s.take(p, s.pods[p.UID], at)
}

// Drop forgets a pod.
func (s *Set) Drop(p *corev1.Pod) {
	if row, ok := s.Mirrors.Get(NameOf(p)); ok && row.UID == p.UID {
		s.Mirrors.Delete(NameOf(p))
	}
	s.forget(p.UID)
}

// Restore takes pods that the API server had when it was heard last. It does
// nothing once it has been heard, and says so.
func (s *Set) Restore(pods []*corev1.Pod, at time.Time) bool {
	if s.synced {
		return false
	}
	for _, p := range pods {
		if !Mirror(p) {
			s.take(p, s.pods[p.UID], at)
		}
	}
	return true
}

// Refusals are the pods that cannot be run here.
func (s *Set) Refusals() []Refusal { return slices.Collect(maps.Values(s.refused)) }

// Pods are those to run, the longest known first, those of one moment by age.
func (s *Set) Pods() []*pod.Pod {
	return slices.SortedFunc(maps.Values(s.pods), func(a, b *pod.Pod) int {
		return cmp.Or(a.Seen.Compare(b.Seen), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.UID, b.UID))
	})
}

// SetObject takes an object; nil says that there is none.
func (s *Set) SetObject(key object.Key, v runtime.Object) {
	if v == nil {
		delete(s.objects, key)
		return
	}
	s.objects[key] = v
}

// Object is the cluster's of that name, or nil.
func (s *Set) Object(key object.Key) runtime.Object { return s.objects[key] }

// Objects are all of them.
func (s *Set) Objects() iter.Seq2[object.Key, runtime.Object] { return maps.All(s.objects) }

func (s *Set) forget(uid types.UID) {
	delete(s.pods, uid)
	delete(s.refused, uid)
}

func (s *Set) putMirror(p *corev1.Pod) {
	if row, ok := s.Mirrors.Get(NameOf(p)); !ok || !sameVersion(row, p) {
		s.Mirrors.Put(NameOf(p), p)
	}
}

func (s *Set) take(p *corev1.Pod, was *pod.Pod, at time.Time) *pod.Pod {
	s.forget(p.UID)
	if err := unfit(p, s.node); err != nil {
		s.refused[p.UID] = Refusal{NameOf(p), err}
		return nil
	}
	now := &pod.Pod{Pod: own(p), Source: pod.SourceAPI, Origin: Origin, Seen: at}
	if was != nil {
		now.Seen = was.Seen
		if sameVersion(was.Pod, now.Pod) {
			now = was
		}
	}
	for uid, other := range s.pods { // the API has a name once: who had it is gone
		if other.Key() == now.Key() {
			delete(s.pods, uid)
		}
	}
	s.pods[p.UID] = now
	return now
}
