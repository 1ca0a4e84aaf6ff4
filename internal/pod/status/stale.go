package status

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/wake"
)

// Stale is the set of pods whose published status is out of date. Parts of the node mark pods in it from any goroutine
// and without waiting; Statuses.Run publishes them.
type Stale struct {
	signal wake.Signal

	mu   sync.Mutex
	pods map[types.UID]bool // true: the pod's plan is out of date too
	all  bool
}

// NewStale returns an empty set.
func NewStale() *Stale { return &Stale{signal: wake.New(), pods: map[types.UID]bool{}} }

// Mark says that something has changed that only the status of a pod shows, such as the health of a device.
func (s *Stale) Mark(uid types.UID) { s.mark(uid, false) }

// MarkVerdict says that the verdict of a probe of a pod has changed. Once the status is published, the pod's worker
// plans again.
func (s *Stale) MarkVerdict(uid types.UID) { s.mark(uid, true) }

// MarkAll says that something has changed that the status of every pod shows, such as the addresses of the node.
func (s *Stale) MarkAll() {
	s.mu.Lock()
	s.all = true
	s.mu.Unlock()
	s.signal.Wake()
}

func (s *Stale) mark(uid types.UID, plan bool) {
	s.mu.Lock()
	s.pods[uid] = s.pods[uid] || plan
	s.mu.Unlock()
	s.signal.Wake()
}

// take empties the set and returns what was in it.
func (s *Stale) take() (pods map[types.UID]bool, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pods, all = s.pods, s.all
	s.pods, s.all = map[types.UID]bool{}, false
	return pods, all
}
