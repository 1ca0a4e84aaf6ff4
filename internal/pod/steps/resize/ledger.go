package resize

import (
	"errors"
	"log/slog"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/model/pod"
)

// record is what is known of a pod, on disk: version 1.
type record struct {
	// Allocated are the sizes that the node has promised.
	Allocated Sizes `json:"allocated"`
	// Actuated is by container name.
	Actuated map[string]given `json:"actuated,omitempty"`
	// Resizing says that a resize was allocated and is not complete.
	Resizing bool `json:"resizing,omitempty"`
}

// entry is a record with what need not outlive the process.
type entry struct {
	record
	pending answer
	failed  string // why the work could not be done; "" when it could
	wanted  Sizes  // those that were asked for last, if that was counted
}

// ledger holds the entries and their files.
type ledger struct {
	log    *slog.Logger
	disk   *checkpoint.Dir[record]
	wake   chan struct{}
	synced <-chan struct{}
	known  func(types.UID) bool

	mu    sync.Mutex
	pods  map[types.UID]*entry
	dirty map[types.UID]bool
	// files orders writes: the last one of a pod is its last state.
	files sync.Mutex
}

func newLedger(o Options) *ledger {
	return &ledger{
		log: o.Log, synced: o.Synced, known: o.Known,
		disk: checkpoint.NewDir[record](o.Dir, checkpoint.Format{Version: 1}), wake: make(chan struct{}, 1),
		pods: map[types.UID]*entry{}, dirty: map[types.UID]bool{},
	}
}

// Load reads what an earlier agent kept. What could be read counts also when
// there is an error.
func (s *ledger) Load() error {
	all, err := s.disk.LoadAll()
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, r := range all {
		s.pods[types.UID(uid)] = &entry{record: r}
	}
	for _, damaged := range split(err) {
		if _, ok := errors.AsType[*checkpoint.DamagedError](damaged); !ok {
			return err
		}
		s.log.Error("load what is allocated to a pod", "err", damaged)
	}
	return nil
}

func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// Admitted notes what a pod is given when it comes to the node.
func (s *ledger) Admitted(p *pod.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[p.UID] == nil {
		s.pods[p.UID] = &entry{record: record{Allocated: sizesOf(p.Pod)}}
		s.touch(p.UID)
	}
}

// Forget drops a pod that is gone, its file included.
func (s *ledger) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[uid] != nil {
		delete(s.pods, uid)
		s.touch(uid)
	}
}

// retain forgets the pods that are not known any more.
func (s *ledger) retain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.pods {
		if !s.known(uid) {
			delete(s.pods, uid)
			s.touch(uid)
		}
	}
}

// with changes a pod's entry, if there is one; f says whether its file is out of
// date. Maps in an entry are replaced, never changed: they are read outside.
func (s *ledger) with(uid types.UID, f func(*entry) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.pods[uid]; e != nil && f(e) {
		s.touch(uid)
	}
}

func (s *ledger) given(uid types.UID) map[string]given {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.pods[uid]; e != nil {
		return e.Actuated
	}
	return nil
}

// give notes what containers have now.
func (s *ledger) give(uid types.UID, news map[string]given) {
	s.with(uid, func(e *entry) bool {
		all := maps.Clone(e.Actuated)
		if all == nil {
			all = map[string]given{}
		}
		maps.Copy(all, news)
		e.Actuated = all
		return true
	})
}

// touch marks a pod whose file is out of date; mu is held.
func (s *ledger) touch(uid types.UID) {
	s.dirty[uid] = true
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// save makes a pod's file what its record is now. After a power cut nothing of
// the pod runs, and it is allocated anew.
func (s *ledger) save(uid types.UID) error {
	s.files.Lock()
	defer s.files.Unlock()
	s.mu.Lock()
	e := s.pods[uid]
	var r record
	if e != nil {
		r = e.record
	}
	s.mu.Unlock()
	if e == nil {
		return s.disk.DeleteUnsynced(string(uid))
	}
	return s.disk.SaveUnsynced(string(uid), r)
}
