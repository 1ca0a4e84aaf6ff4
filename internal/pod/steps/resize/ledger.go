package resize

import (
	"log/slog"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/pod"
)

// record is the stored state of a pod, format version 1.
type record struct {
	// Allocated are the sizes that the node has promised to the pod.
	Allocated Sizes `json:"allocated"`
	// Actuated holds the resources that each container last received, by container name. Under Whole it has the
	// resources of the pod's cgroup, if the pod's own resources were ever resized.
	Actuated map[string]given `json:"actuated,omitempty"`
	// Resizing is set if an allocated resize is not complete.
	Resizing bool `json:"resizing,omitempty"`
	// Generation is the pod's generation that asked for the last allocated resize.
	Generation int64 `json:"generation,omitempty"`
}

// entry is a record with the state that is lost at a restart.
type entry struct {
	record
	pending           answer
	pendingGeneration int64  // the pod's generation that asked for the pending resize
	failed            string // why the last try failed; "" if it succeeded
	wanted            Sizes  // the sizes last requested, if that request was counted
}

// ledger holds the entries and writes their files.
type ledger struct {
	log    *slog.Logger
	disk   *checkpoint.Dir[record]
	wake   wake.Signal
	synced <-chan struct{}
	node   pods
	// initFixed means that only sidecars among init containers can be resized.
	initFixed bool
	// kubelet is the root directory of a kubelet that may take over, or "".
	kubelet string

	mu    sync.Mutex
	pods  map[types.UID]*entry
	dirty map[types.UID]bool
	// files orders the writes, so that a pod's last state is written last.
	files sync.Mutex
}

func newLedger(o Options) *ledger {
	return &ledger{
		log: o.Log, synced: o.Synced, node: o.Pods, initFixed: o.InitFixed, kubelet: o.KubeletDir,
		disk: checkpoint.NewDir[record](o.Dir, checkpoint.Format{Version: 1}), wake: wake.New(),
		pods: map[types.UID]*entry{}, dirty: map[types.UID]bool{},
	}
}

// Load reads the records of the previous agent. It logs and skips damaged files. It returns an error if the directory
// cannot be read.
func (s *ledger) Load() error {
	all, err := s.disk.LoadAll()
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, r := range all {
		s.pods[types.UID(uid)] = &entry{record: r}
	}
	damaged, err := checkpoint.Damaged(err)
	if err != nil {
		return err
	}
	if err := takeOver(s); err != nil {
		damaged = append(damaged, err)
	}
	for _, one := range damaged {
		s.log.Error("load allocated resources of a pod failed; its present spec counts", "err", one)
	}
	return nil
}

// Admitted records the resources of a pod at its admission.
func (s *ledger) Admitted(p *pod.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[p.UID] == nil {
		s.pods[p.UID] = &entry{record: record{Allocated: s.sizes(p.Pod)}}
		s.touch(p.UID)
	}
}

// sizes returns the sizes of a pod that the node allocates.
func (s *ledger) sizes(p *corev1.Pod) Sizes {
	all := sizesOf(p)
	for _, c := range pod.Containers(p) {
		if c.Kind == pod.Init && s.initFixed {
			delete(all, c.Name)
		}
	}
	return all
}

// Forget removes a pod that is gone, and its file.
func (s *ledger) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[uid] != nil {
		delete(s.pods, uid)
		s.touch(uid)
	}
}

// retain removes the pods that are not known any more.
func (s *ledger) retain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.pods {
		if !s.node.Known(uid) {
			delete(s.pods, uid)
			s.touch(uid)
		}
	}
}

// with changes a pod's entry if there is one. f returns whether the pod's file must be written. Maps in an entry are
// replaced and never changed, because readers use them without the lock.
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

// give records the resources that containers have now.
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

// giveWhole records the pod-level resources that the pod's cgroup has now.
func (s *ledger) giveWhole(p *corev1.Pod) {
	if _, resized := s.given(p.UID)[Whole]; resized {
		s.give(p.UID, map[string]given{Whole: {Resources: sizesOf(p)[Whole]}})
	}
}

// Replace records that a container instance must be replaced after its stop (Restarts). The record is on disk when
// Replace returns.
func (s *ledger) Replace(uid types.UID, container, id string) error {
	g := s.given(uid)[container]
	if g.ID == id && g.Restart {
		return nil
	}
	if g.ID != id {
		g = given{ID: id}
	}
	g.Restart = true
	s.give(uid, map[string]given{container: g})
	return s.save(uid)
}

// touch marks a pod's file as out of date. The caller holds mu.
func (s *ledger) touch(uid types.UID) {
	s.dirty[uid] = true
	s.wake.Wake()
}

// save writes a pod's record to its file. The write is not synced: after a power cut nothing of the pod runs, so it is
// allocated anew.
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
