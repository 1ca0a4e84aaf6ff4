package status

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/wake"
)

// Stale is the set of pods whose published status is out of date. Parts of the node mark pods in it from any goroutine
// and without waiting; Statuses.Run publishes them.
type Stale struct{ marks *wake.Set[mark] }

// mark is a reason to publish a status again.
type mark struct {
	uid  types.UID
	plan bool // the pod's plan is out of date too
	all  bool // it is about all pods, and uid is empty
}

// NewStale returns an empty set.
func NewStale() *Stale { return &Stale{marks: wake.NewSet[mark]()} }

// Mark says that something has changed that only the status of a pod shows, such as the health of a device.
func (s *Stale) Mark(uid types.UID) { s.marks.Add(mark{uid: uid}) }

// MarkVerdict says that the verdict of a probe of a pod has changed. Once the status is published, the pod's worker
// plans again.
func (s *Stale) MarkVerdict(uid types.UID) { s.marks.Add(mark{uid: uid, plan: true}) }

// MarkAll says that something has changed that the status of every pod shows, such as the addresses of the node.
func (s *Stale) MarkAll() { s.marks.Add(mark{all: true}) }

// take empties the set and returns its content. The value of a pod says whether its plan is out of date too.
func (s *Stale) take() (pods map[types.UID]bool, all bool) {
	pods = map[types.UID]bool{}
	for m := range s.marks.Take() {
		if m.all {
			all = true
		} else {
			pods[m.uid] = pods[m.uid] || m.plan
		}
	}
	return pods, all
}
