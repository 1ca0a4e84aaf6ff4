package cluster

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
)

// Origin is the origin of pods of the API server.
const Origin = "the API server"

// Set holds what the API server has for this node. One goroutine at a time may use it, except for Mirrors.
type Set struct {
	// Mirrors holds the mirror pods, by name.
	Mirrors *store.Table[types.NamespacedName, *corev1.Pod]

	node    string
	ignored pod.Ignored
	synced  bool
	pods    map[types.UID]*pod.Pod
	refused map[types.UID]Refusal
	changed map[types.UID]bool // since Changes was called
}

// Change is a pod that was added or replaced, or that is gone.
type Change struct {
	UID types.UID
	Pod *pod.Pod // nil: it is gone, or cannot run here
}

// Refusal is a pod that cannot run here, and why.
type Refusal struct {
	Name types.NamespacedName
	Err  error
}

// New returns an empty set. Its pods do not have the ignored fields.
func New(node string, ignored pod.Ignored) *Set {
	return &Set{
		Mirrors: store.New[types.NamespacedName, *corev1.Pod](), node: node, ignored: ignored,
		pods: map[types.UID]*pod.Pod{}, refused: map[types.UID]Refusal{}, changed: map[types.UID]bool{},
	}
}

// Replace replaces all pods of the API server.
func (s *Set) Replace(pods []*corev1.Pod, at time.Time) {
	was := s.pods
	s.synced = true
	for uid := range was {
		s.changed[uid] = true
	}
	s.pods, s.refused = map[types.UID]*pod.Pod{}, map[types.UID]Refusal{}
	mirrors := map[types.NamespacedName]bool{}
	for _, p := range pods {
		if Mirror(p) {
			mirrors[NameOf(p)] = true
			s.putMirror(p)
		} else {
			s.add(p, was[p.UID], at)
		}
	}
	for name := range s.Mirrors.Snapshot().All() {
		if !mirrors[name] {
			s.Mirrors.Delete(name)
		}
	}
}

// Put adds or replaces a pod. It returns the pod to run: the same value as before if nothing changed, nil if the pod
// does not run here.
func (s *Set) Put(p *corev1.Pod, at time.Time) *pod.Pod {
	if Mirror(p) {
		s.putMirror(p)
		return nil
	}
	return s.add(p, s.pods[p.UID], at)
}

// Drop removes a pod.
func (s *Set) Drop(p *corev1.Pod) {
	if row, ok := s.Mirrors.Get(NameOf(p)); ok && row.UID == p.UID {
		s.Mirrors.Delete(NameOf(p))
	}
	s.forget(p.UID)
}

// Restore adds pods that the API server had when it was last reachable. Once the API server has answered, it does
// nothing and returns false.
func (s *Set) Restore(pods []*corev1.Pod, at time.Time) bool {
	if s.synced {
		return false
	}
	for _, p := range pods {
		if !Mirror(p) {
			s.add(p, s.pods[p.UID], at)
		}
	}
	return true
}

// Refusals returns the pods that cannot run here.
func (s *Set) Refusals() []Refusal { return slices.Collect(maps.Values(s.refused)) }

// Changes returns the pods that may have changed since the last call, by the time they were first seen, then by age.
// The pods that are gone come first.
func (s *Set) Changes() (all []Change) {
	var pods []*pod.Pod
	for uid := range s.changed {
		if p := s.pods[uid]; p != nil {
			pods = append(pods, p)
		} else {
			all = append(all, Change{UID: uid})
		}
	}
	clear(s.changed)
	slices.SortFunc(pods, func(a, b *pod.Pod) int {
		return cmp.Or(a.Seen.Compare(b.Seen), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.UID, b.UID))
	})
	for _, p := range pods {
		all = append(all, Change{p.UID, p})
	}
	return all
}

func (s *Set) forget(uid types.UID) {
	delete(s.pods, uid)
	delete(s.refused, uid)
	s.changed[uid] = true
}

func (s *Set) putMirror(p *corev1.Pod) {
	if row, ok := s.Mirrors.Get(NameOf(p)); !ok || !sameVersion(row, p) {
		s.Mirrors.Put(NameOf(p), p)
	}
}

func (s *Set) add(p *corev1.Pod, was *pod.Pod, at time.Time) *pod.Pod {
	s.forget(p.UID)
	if err := unfit(p, s.node); err != nil {
		s.refused[p.UID] = Refusal{NameOf(p), err}
		return nil
	}
	now := &pod.Pod{Pod: s.ignored.Without(own(p)), Source: pod.SourceAPI, Origin: Origin, Seen: at}
	if was != nil {
		now.Seen = was.Seen
		if sameVersion(was.Pod, now.Pod) {
			now = was
		}
	}
	for uid, other := range s.pods { // a name is unique in the API, so the other pod is gone
		if other.Key() == now.Key() {
			delete(s.pods, uid)
			s.changed[uid] = true
		}
	}
	s.pods[p.UID] = now
	return now
}
