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
	// DesiredSynced and ObservedSynced are closed when the tables have held
	// everything once. Nothing is admitted before the second, and nothing
	// unknown is ended before both.
	DesiredSynced, ObservedSynced <-chan struct{}
	// Leftovers lists pods that have something on this node's disk or in its
	// cgroups, running or not.
	Leftovers func() ([]types.UID, error)
	// Ahead prepares a pod that waits for other pods to end. Its context ends when the
	// pod is not wanted any more, or its version changes. nil: nothing is prepared.
	Ahead func(ctx context.Context, p *pod.Pod)
	// Worker are the options of all workers. The fleet sets Passed and Worked itself.
	Worker worker.Options
	// Changed is called when a member or the state of its worker has changed. The fleet
	// waits for it. It is called from many goroutines.
	Changed func(types.UID)
	Now     func() time.Time
	Log     *slog.Logger
}

// Admission decides which pods get a worker. The fleet calls it from one goroutine.
type Admission interface {
	// Allocate returns the pod that the node runs for a desired one, beside the pods that hold resources
	// now: its requests and limits may differ from the desired ones (KEP-1287).
	Allocate(want *pod.Pod, others []Other) *pod.Pod
	// Admit decides about one pod, beside the pods that hold resources now.
	Admit(p *pod.Pod, others []Other) Verdict
}

// Other is a pod that holds resources of the node.
type Other struct {
	Pod *pod.Pod
	// Terminating: what it holds will be free soon.
	Terminating bool
	// EndsBy is when the grace of a terminating pod is over: nothing of it runs
	// then, and what it holds is free as soon as it has been undone.
	EndsBy time.Time
}

// Verdict is an admission's answer. The zero value means not yet, without a
// time limit.
type Verdict struct {
	Admit bool
	// Reason and Message of a rejection; of what is waited for otherwise.
	Reason, Message string
	Reject          bool
	// Blocked: it is not the end of another pod that is waited for, but a node
	// that can do what this one asks for.
	Blocked bool
	// Reserve: what it waits for is kept for it. For others it holds that already.
	Reserve bool
	// Ended: it is admitted for what an earlier agent left of it, and holds nothing.
	Ended bool
	// Again is when to ask once more, if nothing changes before; zero for never.
	Again time.Time
}

// Member is a pod of the fleet at one moment.
type Member struct {
	// Pod as this node runs it; Desired as it is wanted, nil when it is not.
	Pod     *pod.Pod
	Desired *pod.Pod
	Verdict Verdict
	// Working says that a worker has it; State is valid then.
	Working bool
	State   worker.State
	// Orphan says that nobody wants the pod and it is only being ended.
	Orphan bool
	// Gone says that nothing of the pod is left on this node, and that it is a
	// member only until the API, which wants it deleted, has dropped it. State is
	// the last one.
	Gone bool
}

type member struct {
	pod     *pod.Pod
	desired *pod.Pod // nil: nobody wants it
	due     bool     // pod is not what is desired, or not known to be
	verdict Verdict
	worker  *worker.Worker
	orphan  bool
	gone    bool
	ahead   context.CancelFunc // ends Ahead; nil: it was not begun
}

// Fleet is the set of this node's pods.
type Fleet struct {
	opts    Options
	asks    Admission     // set by Run
	kick    chan struct{} // something about admission may have changed
	ping    chan struct{} // taken by Run
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

// Settled is closed once every pod that an earlier agent left, or that a source
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

// Stop ends a pod, if the fleet has it and it runs.
func (f *Fleet) Stop(uid types.UID, s pod.Stop) {
	if w := f.worker(uid); w != nil {
		w.Stop(s)
	}
}

// Wake makes the worker of a pod plan again, because something that the plan depends on
// has changed.
func (f *Fleet) Wake(uid types.UID) {
	if w := f.worker(uid); w != nil {
		w.Wake()
	}
}

// ObjectsChanged retries whatever waits for one of these objects: a part of a pod, or
// its admission.
func (f *Fleet) ObjectsChanged(keys map[object.Key]bool) {
	for _, w := range f.workers() {
		w.ObjectsChanged(keys)
	}
	f.Reconsider()
}

// Retry retries at once whatever has failed with a matching error, even if its next try
// is not due yet.
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

// Reconsider makes Run ask admission again about the pods that wait for it.
func (f *Fleet) Reconsider() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// Ping returns nil when Run takes it, or ctx's error: the loop is stuck, or has
// not begun.
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
		f.Reconsider() // what it holds may be free
	}
}

// Pods are the pods that hold resources of the node.
func (f *Fleet) Pods() []*corev1.Pod {
	others := f.Holders()
	pods := make([]*corev1.Pod, len(others))
	for i, o := range others {
		pods[i] = o.Pod.Pod
	}
	return pods
}
