package podstatus

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
)

// Options of Statuses.
type Options struct {
	// Dir keeps the statuses, one file a pod, so that times, restart counts and
	// final phases outlive the agent. Empty: they are kept in memory only.
	Dir string
	// Delay is the least time between two writes. The first change after a pause
	// is written at once. Default 2 s.
	Delay time.Duration
	// MessagePath is the file on the host that a run of a container has as its
	// termination log; "" when it has none.
	MessagePath func(uid types.UID, container string, restartCount int) string
	Log         *slog.Logger
}

// Statuses is the writer of the status table. Its methods may be called from any
// goroutine.
type Statuses struct {
	opts  Options
	table *store.Table[types.UID, corev1.PodStatus]
	files *checkpoint.Dir[corev1.PodStatus] // nil: nothing is kept
	wake  chan struct{}

	disk    sync.Mutex // held while files are written
	failing bool       // the last write failed, which was told; of who holds disk

	mu    sync.Mutex
	pods  map[types.UID]*entry
	saved map[types.UID]corev1.PodStatus // read by Load, not asked for yet
	dirty map[types.UID]struct{}         // differs from its file
}

// entry is what is known of one pod besides its row.
type entry struct {
	mu       sync.Mutex            // one computation at a time
	messages map[string]string     // by id of a container that has exited
	given    []corev1.PodCondition // set by others, not taken in yet
}

// New returns Statuses with an empty table.
func New(o Options) *Statuses {
	if o.Delay <= 0 {
		o.Delay = 2 * time.Second
	}
	s := &Statuses{
		opts: o, table: store.New[types.UID, corev1.PodStatus](), wake: make(chan struct{}, 1),
		pods: map[types.UID]*entry{}, saved: map[types.UID]corev1.PodStatus{}, dirty: map[types.UID]struct{}{},
	}
	if o.Dir != "" {
		s.files = checkpoint.NewDir[corev1.PodStatus](o.Dir, checkpoint.Format{Version: 1})
	}
	return s
}

// Table is the status table, for reading.
func (s *Statuses) Table() *store.Table[types.UID, corev1.PodStatus] { return s.table }

// Last returns a pod's last status, also one that an earlier agent has kept. It
// is empty for a pod that has none.
func (s *Statuses) Last(uid types.UID) corev1.PodStatus {
	if status, known := s.table.Get(uid); known {
		return status
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saved[uid]
}

// Kept is Last for whoever goes on from there: empty for a pod that was rejected,
// which may be admitted now, or that a shutdown of the node has ended, which is
// no end of its own.
func (s *Statuses) Kept(uid types.UID) corev1.PodStatus {
	status := s.Last(uid)
	if wasRejected(status) || status.Reason == string(pod.StopShutdown) {
		return corev1.PodStatus{}
	}
	return status
}

// Update computes a pod's status and writes it if it changed. Previous and
// Messages of the input are filled in; in a pod's first Update Previous is the
// one kept by an earlier agent, if there is one.
func (s *Statuses) Update(in Input) (status corev1.PodStatus, changed bool) {
	uid := in.Pod.UID
	e := s.entry(uid)
	e.mu.Lock()
	defer e.mu.Unlock()
	was, known := s.table.Get(uid)
	if !known {
		s.mu.Lock()
		was = s.saved[uid]
		delete(s.saved, uid)
		s.mu.Unlock()
	}
	in.Previous = was
	in.Messages = s.readMessages(e, &in)
	given := e.given
	in.Extra, e.given = append(given, in.Extra...), nil
	status = Compute(in)
	if known && equality.Semantic.DeepEqual(was, status) {
		return was, false
	}
	switch {
	case final(status.Phase) && was.Phase != status.Phase, len(given) > 0, endedForGood(in.Pod.Pod, was, status):
		s.keepNow(uid, status, true)
	case Ready(was) != Ready(status):
		s.keepNow(uid, status, false)
	}
	s.table.Put(uid, status)
	s.touch(uid)
	return status, true
}

// Ready says that a status has the condition Ready.
func Ready(s corev1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// endedForGood says whether a container has ended since that may not run again: its
// status is all that tells of it, once somebody has removed it.
func endedForGood(p *corev1.Pod, was, now corev1.PodStatus) bool {
	ends := map[string]string{} // container id by name
	for _, s := range was.ContainerStatuses {
		if s.State.Terminated != nil {
			ends[s.Name] = s.State.Terminated.ContainerID
		}
	}
	return slices.ContainsFunc(now.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		if s.State.Terminated == nil || ends[s.Name] == s.State.Terminated.ContainerID {
			return false
		}
		i := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == s.Name })
		own := i >= 0 && p.Spec.Containers[i].RestartPolicy != nil &&
			*p.Spec.Containers[i].RestartPolicy != corev1.ContainerRestartPolicyAlways
		return own || p.Spec.RestartPolicy != corev1.RestartPolicyAlways
	})
}

// keepNow writes a status before anybody is told: that the pod or a container of it
// has ended, since it is not to run again, whatever becomes of its containers; what
// somebody has set; and that it has become ready or is not any more, whose time nothing else
// knows. synced is that it outlives a power cut, which makes unready what runs. A failure is
// told and made up for by the write that comes later.
func (s *Statuses) keepNow(uid types.UID, status corev1.PodStatus, synced bool) {
	if s.files == nil {
		return
	}
	s.disk.Lock()
	defer s.disk.Unlock()
	save := s.files.SaveUnsynced
	if synced {
		save = s.files.Save
	}
	if err := save(string(uid), status); err != nil {
		s.tellFailed(1, err)
	}
}

// Forget drops a pod that is gone for good, its file included: one that comes back
// under its UID begins anew, also for an agent that is killed a moment later.
func (s *Statuses) Forget(uid types.UID) {
	e := s.entry(uid)
	e.mu.Lock() // a computation under way ends first
	s.table.Delete(uid)
	s.mu.Lock()
	delete(s.pods, uid)
	delete(s.saved, uid)
	s.mu.Unlock()
	e.mu.Unlock()
	if err := s.unlink(uid); err != nil {
		s.touch(uid) // with the next write
	}
}

// unlink removes the file of a pod that has no row.
func (s *Statuses) unlink(uid types.UID) error {
	if s.files == nil {
		return nil
	}
	s.disk.Lock()
	defer s.disk.Unlock()
	if _, back := s.table.Get(uid); back {
		return nil
	}
	return s.files.DeleteUnsynced(string(uid))
}

func (s *Statuses) entry(uid types.UID) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.pods[uid]
	if e == nil {
		e = &entry{}
		s.pods[uid] = e
	}
	return e
}

// readMessages gives the termination messages of the containers whose end was not
// reported yet. Each is read once: the first time that its end is seen.
func (s *Statuses) readMessages(e *entry, in *Input) map[string]string {
	var now map[string]string
	for _, run := range in.Observed.ContainersOf() {
		if run.State != pod.StateExited || reported(&in.Previous, in.Node.Runtime+"://"+run.ID) != nil {
			continue
		}
		message, read := e.messages[run.ID]
		if !read {
			path := ""
			if s.opts.MessagePath != nil && run.TerminationMessagePath != "" {
				path = s.opts.MessagePath(in.Pod.UID, run.Name, run.RestartCount)
			}
			message = terminationMessage(run, path)
		}
		if now == nil {
			now = map[string]string{}
		}
		now[run.ID] = message
	}
	e.messages = now
	return now
}
