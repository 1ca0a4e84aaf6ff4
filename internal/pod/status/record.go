package status

import (
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/podstatus"
)

// RecordOptions are the options of a Record.
type RecordOptions struct {
	// Dir keeps the statuses, one file a pod, so that times, restart counts and final phases outlive the agent. Empty:
	// they are kept in memory only.
	Dir string
	// Delay is the least time between two writes. The first change after a pause is written at once. The default is 2
	// s.
	Delay time.Duration
	// Dirs may be nil: then no container has a termination log.
	Dirs Dirs
	// Stale receives the pods whose termination messages were read. It may be nil.
	Stale *Stale
	Log   *slog.Logger
}

// Dirs are the directories of pods.
type Dirs interface {
	// MessagePath returns the file on the host that is the termination log of one run of a container; "" if there is
	// none.
	MessagePath(uid types.UID, container string, restartCount int) string
}

// Record is the last status of each pod, in memory and on disk. Statuses writes it, and all other parts read it. Its
// methods may be called from any goroutine.
type Record struct {
	opts  RecordOptions
	table *store.Table[types.UID, corev1.PodStatus]
	files *checkpoint.Dir[corev1.PodStatus] // nil: nothing is kept
	wake  wake.Signal

	disk    sync.Mutex // held while files are written
	failing bool       // the last write failed, and its error was logged; guarded by disk

	mu    sync.Mutex
	pods  map[types.UID]*entry
	saved map[types.UID]corev1.PodStatus // read by Load, and not updated since
	dirty map[types.UID]struct{}         // pods whose file is out of date
}

// entry holds what the next status of one pod is computed from.
type entry struct {
	mu       sync.Mutex            // one computation at a time
	readings map[string]*reading   // by id of a container that has exited
	reading  int                   // readings under way, also those that readings does not hold any more
	set      []corev1.PodCondition // set by SetCondition since the last status
}

// NewRecord returns a Record without any status.
func NewRecord(o RecordOptions) *Record {
	if o.Delay <= 0 {
		o.Delay = 2 * time.Second
	}
	if o.Stale == nil {
		o.Stale = NewStale()
	}
	r := &Record{
		opts: o, table: store.New[types.UID, corev1.PodStatus](), wake: wake.New(),
		pods: map[types.UID]*entry{}, saved: map[types.UID]corev1.PodStatus{}, dirty: map[types.UID]struct{}{},
	}
	if o.Dir != "" {
		r.files = checkpoint.NewDir[corev1.PodStatus](o.Dir, checkpoint.Format{Version: 1})
	}
	return r
}

// Last returns the last status of a pod, which may be from an earlier agent. It is empty for a pod that has none.
func (r *Record) Last(uid types.UID) corev1.PodStatus {
	if status, known := r.table.Get(uid); known {
		return status
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.saved[uid]
}

// Kept returns the last status if the pod goes on from it (podstatus.GoesOn), else an empty one.
func (r *Record) Kept(uid types.UID) corev1.PodStatus {
	if status := r.Last(uid); podstatus.GoesOn(status) {
		return status
	}
	return corev1.PodStatus{}
}

// update computes the status of a pod and stores it if it has changed. It fills in Previous and Messages of the input.
// For the first update of a pod, Previous is the status of an earlier agent, if there is one.
//
// It reads no file of a pod itself. If the message of a container is being read, it stores nothing and returns the
// reading in wait. Record marks the pod in Stale once the reading is over.
func (r *Record) update(in podstatus.Input) (status corev1.PodStatus, changed bool, wait *reading) {
	uid := in.Pod.UID
	e := r.entry(uid)
	e.mu.Lock()
	defer e.mu.Unlock()
	was, known := r.table.Get(uid)
	if !known {
		r.mu.Lock()
		was = r.saved[uid]
		r.mu.Unlock()
	}
	in.Previous = was
	if in.Messages, wait = r.messages(e, &in); wait != nil {
		return was, false, wait
	}
	if !known {
		r.mu.Lock()
		delete(r.saved, uid)
		r.mu.Unlock()
	}
	given := e.set
	in.Extra, e.set = append(given, in.Extra...), nil
	status = podstatus.Compute(in)
	if known && equality.Semantic.DeepEqual(was, status) {
		return was, false, nil
	}
	switch {
	case pod.Ended(status.Phase) && was.Phase != status.Phase, len(given) > 0, endedForGood(in.Pod.Pod, was, status):
		r.keepNow(uid, status, true)
	case podstatus.Ready(was) != podstatus.Ready(status):
		r.keepNow(uid, status, false)
	default:
		r.table.Put(uid, status)
	}
	r.touch(uid)
	return status, true, nil
}

// keepNow writes a status to disk before it stores it for others to see. It holds the disk meanwhile, so that flush
// does not write the status before over it. It is for facts that the next agent could not find again:
// that the pod or a container has ended for good, a condition that a user has set, and when the pod became ready or
// unready. With synced the file also outlives a power cut, which makes running pods unready anyway. If the write fails,
// the error is logged and the next save repeats it.
func (r *Record) keepNow(uid types.UID, status corev1.PodStatus, synced bool) {
	r.disk.Lock()
	defer r.disk.Unlock()
	defer r.table.Put(uid, status)
	if r.files == nil {
		return
	}
	save := r.files.SaveUnsynced
	if synced {
		save = r.files.Save
	}
	if err := save(string(uid), status); err != nil {
		r.logFailed(1, err)
	}
}

// forget drops the status of a pod that is gone, and its file. A pod that comes back under the same UID starts afresh,
// even if the agent is killed a moment later.
func (r *Record) forget(uid types.UID) {
	e := r.entry(uid)
	e.mu.Lock() // waits for a computation under way
	r.table.Delete(uid)
	r.mu.Lock()
	delete(r.pods, uid)
	delete(r.saved, uid)
	r.mu.Unlock()
	e.mu.Unlock()
	if err := r.unlink(uid); err != nil {
		r.touch(uid) // the next save deletes it
	}
}

// unlink deletes the file of a pod without a status.
func (r *Record) unlink(uid types.UID) error {
	if r.files == nil {
		return nil
	}
	r.disk.Lock()
	defer r.disk.Unlock()
	if _, back := r.table.Get(uid); back {
		return nil
	}
	return r.files.DeleteUnsynced(string(uid))
}

func (r *Record) entry(uid types.UID) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.pods[uid]
	if e == nil {
		e = &entry{}
		r.pods[uid] = e
	}
	return e
}

// putCondition adds a condition to the last status of a pod whose next status cannot be computed.
func (r *Record) putCondition(uid types.UID, c corev1.PodCondition) corev1.PodStatus {
	e := r.entry(uid)
	e.mu.Lock()
	defer e.mu.Unlock()
	status := podstatus.WithCondition(r.Last(uid), c, time.Now())
	r.table.Put(uid, status)
	r.touch(uid)
	return status
}

// setCondition sets a condition that podstatus.Foreign allows, for as long as the pod has a status. The next update
// adds it.
func (r *Record) setCondition(uid types.UID, c corev1.PodCondition) {
	e := r.entry(uid)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.set = append(e.set, corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
}
