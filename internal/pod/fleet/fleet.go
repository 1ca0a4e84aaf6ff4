package fleet

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/worker"
)

// Options of a Fleet.
type Options struct {
	Desired  *store.Table[types.UID, *pod.Pod]
	Observed *store.Table[types.UID, *pod.Observed]
	// DesiredSynced and ObservedSynced are closed when the first complete state is in each table. The fleet admits no
	// pod before ObservedSynced, and ends no unknown pod before both.
	DesiredSynced, ObservedSynced <-chan struct{}
	// Leftovers lists the pods that have files or cgroups on this node, running or not.
	Leftovers func() ([]types.UID, error)
	// Ahead prepares a pod that waits for other pods to end. Its context ends when the pod is not wanted any more, or
	// its version changes. nil: nothing is prepared.
	Ahead func(ctx context.Context, p *pod.Pod)
	// Worker holds the options of all workers. The fleet sets Passed and Worked itself.
	Worker worker.Options
	// Changed is called when a member or the state of its worker has changed. The fleet waits for it. It is called from
	// many goroutines.
	Changed func(types.UID)
	Now     func() time.Time
	Log     *slog.Logger
}

// Admission decides which pods get a worker. The fleet calls it from one goroutine.
type Admission interface {
	// Allocate returns the pod that the node runs for a desired one, beside the pods that hold resources now: its
	// requests and limits may differ from the desired ones (KEP-1287).
	Allocate(want *pod.Pod, others []Other) *pod.Pod
	// Admit decides about one pod, beside the pods that hold resources now.
	Admit(p *pod.Pod, others []Other) Verdict
}

// Other is a pod that holds resources of the node.
type Other struct {
	Pod *pod.Pod
	// Terminating means that the pod is ending, so that its resources will be free soon.
	Terminating bool
	// EndsBy is when the grace period of a terminating pod is over. Nothing of it runs then, and its resources are free
	// as soon as its steps are undone.
	EndsBy time.Time
}

// Verdict is the answer of admission. The zero value means that the pod waits, without a time limit.
type Verdict struct {
	Admit bool
	// Reason and Message describe a rejection, or else what the pod waits for.
	Reason, Message string
	Reject          bool
	// Blocked means that the pod waits for a change of the node, which lacks a feature that the pod needs. It does not
	// wait for another pod to end.
	Blocked bool
	// Reserve means that the resources the pod waits for are reserved for it. In the admission of other pods they count
	// as held.
	Reserve bool
	// Ended means that the pod is admitted only to clean up after it. It holds no resources.
	Ended bool
	// Again is when to run admission for the pod again if nothing changes before. Zero means never.
	Again time.Time
}

// Member is a pod of the fleet at one moment.
type Member struct {
	// Pod is the pod as this node runs it. Desired is the pod as its source wants it, nil if no source wants it.
	Pod     *pod.Pod
	Desired *pod.Pod
	Verdict Verdict
	// Working means that the pod has a worker. State is valid only then.
	Working bool
	State   worker.State
	// Orphan means that the pod was found on the node and that no source wants it. The fleet only ends it.
	Orphan bool
	// Gone means that nothing of the pod is left on this node. It stays a member only until the API server, which is
	// deleting it, has removed it. State is the last state of its worker.
	Gone bool
}

type member struct {
	pod     *pod.Pod
	desired *pod.Pod // nil: no source wants it
	due     bool     // pod is not, or may not be, the version that the node should run
	verdict Verdict
	worker  *worker.Worker
	orphan  bool
	gone    bool
	ahead   context.CancelFunc // cancels Ahead; nil: Ahead was not started
}

// Fleet is the set of this node's pods.
type Fleet struct {
	opts    Options
	asks    Admission     // set by Run
	kick    chan struct{} // wakes Run: the answer of admission may have changed
	ping    chan struct{} // Run receives from it
	settled chan struct{}
	metrics

	mu      sync.Mutex
	members map[types.UID]*member
	ended   []types.UID
	wg      sync.WaitGroup
}

// New makes an empty fleet.
func New(o Options) *Fleet {
	f := &Fleet{opts: o, kick: make(chan struct{}, 1), ping: make(chan struct{}), settled: make(chan struct{}),
		members: map[types.UID]*member{}, metrics: newMetrics()}
	f.opts.Worker.Passed, f.opts.Worker.Worked = f.passed, f.metrics.took
	return f
}

// Settled returns a channel that is closed once every pod that an earlier agent left, and every pod that a source
// wants, is a member.
func (f *Fleet) Settled() <-chan struct{} { return f.settled }

// Member returns a pod of the fleet.
func (f *Fleet) Member(uid types.UID) (Member, bool) {
	f.mu.Lock()
	m, ok := f.members[uid]
	var view Member
	var w *worker.Worker
	if ok {
		view = Member{Pod: m.pod, Desired: m.desired, Verdict: m.verdict, Working: m.worker != nil, Orphan: m.orphan,
			Gone: m.gone}
		w = m.worker
	}
	f.mu.Unlock()
	if w != nil {
		view.State = w.State()
	}
	return view, ok
}

// Stop ends a pod if it has a worker.
func (f *Fleet) Stop(uid types.UID, s pod.Stop) {
	if w := f.worker(uid); w != nil {
		w.Stop(s)
	}
}

// Wake makes the worker of a pod plan again, because something that the plan depends on has changed.
func (f *Fleet) Wake(uid types.UID) {
	if w := f.worker(uid); w != nil {
		w.Wake()
	}
}

// ObjectsChanged retries whatever waits for one of these objects: a part of a pod, or its admission.
func (f *Fleet) ObjectsChanged(keys map[object.Key]bool) {
	for _, w := range f.workers() {
		w.ObjectsChanged(keys)
	}
	f.Reconsider()
}

// Retry retries at once whatever has failed with a matching error, even if its next try is not due yet.
func (f *Fleet) Retry(matches func(error) bool) {
	for _, w := range f.workers() {
		w.Retry(matches)
	}
}

func (f *Fleet) workers() []*worker.Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	workers := make([]*worker.Worker, 0, len(f.members))
	for _, m := range f.members {
		if m.worker != nil {
			workers = append(workers, m.worker)
		}
	}
	return workers
}

// Reconsider makes Run repeat admission for the pods that wait for it.
func (f *Fleet) Reconsider() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// Ping returns nil once Run has received it. It returns ctx's error if the loop is stuck or has not started.
func (f *Fleet) Ping(ctx context.Context) error {
	select {
	case f.ping <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *Fleet) worker(uid types.UID) *worker.Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[uid]; m != nil {
		return m.worker
	}
	return nil
}

// passed is called by every worker after each pass.
func (f *Fleet) passed(uid types.UID) {
	f.opts.Changed(uid)
	if m, ok := f.Member(uid); ok && m.State.Stage >= worker.Terminating {
		f.Reconsider() // its resources may be free
	}
}

// Pods returns the pods that hold resources of the node.
func (f *Fleet) Pods() []*corev1.Pod {
	others := f.Holders()
	pods := make([]*corev1.Pod, len(others))
	for i, o := range others {
		pods[i] = o.Pod.Pod
	}
	return pods
}
