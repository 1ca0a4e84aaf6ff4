package fleet

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/observed"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/worker"
)

// Parts are the tables and parts that a running fleet uses. All are required.
type Parts struct {
	Desired  *store.Table[types.UID, *pod.Pod]
	Observed *observed.Table
	// DesiredSynced is closed when the first complete state is in Desired. The fleet admits no pod before Observed is
	// synced, and ends no unknown pod before both are.
	DesiredSynced <-chan struct{}
	Admission     Admission
	Leftovers     Leftovers
	Manifests     Manifests
	Prefetcher    Prefetcher
	Statuses      Statuses
	Asides        Asides
	// Watchers are notified of the changes of a pod, in their order.
	Watchers []Watcher
	Idle     Idle
	// Worker holds the options of all workers. The fleet sets Owner itself.
	Worker worker.Options
}

// Leftovers are the traces of earlier pods on this node.
type Leftovers interface {
	// Pods lists the pods that have files or cgroups on this node, running or not.
	Pods() ([]types.UID, error)
}

// Manifests knows the manifests that cannot be used.
type Manifests interface {
	// MayWant reports whether such a manifest may want a running pod that is not desired. The fleet does not end it.
	MayWant(*pod.Observed) bool
	// WantsChanged receives when MayWant may answer false where it has answered true.
	WantsChanged() <-chan struct{}
}

// Prefetcher prepares pods that wait for other pods to end.
type Prefetcher interface {
	// Prefetch prepares a pod until its context ends: the pod is not wanted any more, or its version changes.
	Prefetch(ctx context.Context, p *pod.Pod)
}

// Statuses publishes the statuses of pods.
type Statuses interface {
	// Publish is called by the goroutine of a pod's worker when the state of the worker has changed. It may wait for
	// the pod's files.
	Publish(types.UID)
	// PublishNow is called by the fleet's loop when a member has changed. It must not wait for anything of a pod.
	PublishNow(types.UID)
}

// Asides are the pods that are set aside, because the work on them has panicked.
type Asides interface {
	// Panicked sets a pod aside and returns when the next try may begin.
	Panicked(p *corev1.Pod, part string, e *guard.Panic) time.Time
	// Until returns when the next try may begin; zero for a pod that is not set aside.
	Until(types.UID) time.Time
	// Recovered says that a pod is no longer set aside.
	Recovered(types.UID)
}

// Watcher is notified of pods whose status has been published.
type Watcher interface {
	// PodChanged must not block. It is called from many goroutines.
	PodChanged(types.UID)
}

// Idle saves memory and CPU time of the process while the node is idle.
type Idle interface {
	// Stir reports activity on the node.
	Stir()
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
	// Stop ends an admitted pod at once: an earlier agent had begun to end it. nil for other pods.
	Stop *pod.Stop
	// Again is when to run admission for the pod again if nothing changes before. Zero means never.
	Again time.Time
}

// Given reports whether admission has answered about the pod yet.
func (v Verdict) Given() bool { return v != Verdict{} }

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
	ahead   context.CancelFunc // cancels Prefetch; nil: it was not started
	// restored means that Restore made the member: it holds its resources without a worker.
	restored bool
	parked   bool // was set aside when it arrived, so the fleet has not decided yet whether it must end
}

// Fleet is the set of this node's pods. It is empty until Run.
type Fleet struct {
	now     func() time.Time
	log     *slog.Logger
	retry   wake.Signal   // wakes Run: the answer of admission may have changed
	ping    chan struct{} // Run receives from it
	settled chan struct{}
	metrics metrics

	mu      sync.Mutex
	members map[types.UID]*member
	// sorted are the members by namespace and name, so that Holders, which each admission needs, need not sort them.
	sorted []*member
}

// New makes an empty fleet.
func New(now func() time.Time, log *slog.Logger) *Fleet {
	return &Fleet{now: now, log: log, retry: wake.New(), ping: make(chan struct{}), settled: make(chan struct{}),
		members: map[types.UID]*member{}, metrics: newMetrics()}
}

// Restore makes pods members without starting anything of them, for commands on a node without an agent. ended reports
// the pods that have ended, which hold nothing. Restore takes the place of Run and is called once.
func (f *Fleet) Restore(pods []*pod.Pod, ended map[types.UID]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range pods {
		f.add(&member{pod: p, desired: p, restored: true, verdict: Verdict{Admit: true, Ended: ended[p.UID]}})
	}
	close(f.settled)
}

// add makes m a member. The caller holds the lock.
func (f *Fleet) add(m *member) {
	f.members[m.pod.UID] = m
	at, _ := slices.BinarySearchFunc(f.sorted, m, func(a, b *member) int { return byName(a.pod, b.pod) })
	f.sorted = slices.Insert(f.sorted, at, m)
}

// drop removes a member. The caller holds the lock.
func (f *Fleet) drop(m *member) {
	delete(f.members, m.pod.UID)
	at := slices.Index(f.sorted, m) // no binary search: the name of a static pod with a fixed UID can change
	f.sorted = slices.Delete(f.sorted, at, at+1)
}

// Register registers the metrics. Call it once.
func (f *Fleet) Register(reg prometheus.Registerer) error { return f.metrics.register(reg) }

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

// WakeAside makes the worker of a pod, or its admission, wait for the pod's next try, after the pod was set aside.
func (f *Fleet) WakeAside(uid types.UID) {
	f.Wake(uid)
	f.Reconsider()
}

func (f *Fleet) workers() []*worker.Worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	workers := make([]*worker.Worker, 0, len(f.members))
	for _, m := range f.sorted {
		if m.worker != nil {
			workers = append(workers, m.worker)
		}
	}
	return workers
}

// Hang is a call in the work on a pod that takes longer than it should.
type Hang struct {
	Pod *pod.Pod
	worker.Hang
}

// Hangs returns the calls and tasks of workers that take longer than they should, the oldest first.
func (f *Fleet) Hangs() (all []Hang) {
	for _, w := range f.workers() {
		for _, h := range w.Hangs() {
			_, p, _ := w.Life()
			all = append(all, Hang{Pod: p, Hang: h})
		}
	}
	slices.SortFunc(all, func(a, b Hang) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(pod.FullName(a.Pod.Pod), pod.FullName(b.Pod.Pod)))
	})
	return all
}

// Reconsider makes Run repeat admission for the pods that wait for it.
func (f *Fleet) Reconsider() { f.retry.Wake() }

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

// Working reports whether a pod has a worker: the node has admitted it, or ends it.
func (f *Fleet) Working(uid types.UID) bool { return f.worker(uid) != nil }

// Syncing returns a pod that is not ending. ok is false if the pod is no member, or ends, or has ended.
func (f *Fleet) Syncing(uid types.UID) (p *corev1.Pod, ok bool) {
	m, ok := f.Member(uid)
	if !ok || m.State.Stage != worker.Syncing {
		return nil, false
	}
	return m.Pod.Pod, true
}

// Pod returns a pod of the fleet as this node runs it.
func (f *Fleet) Pod(uid types.UID) (p *corev1.Pod, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[uid]; m != nil {
		return m.pod.Pod, true
	}
	return nil, false
}

// known returns a pod of the fleet as this node runs it, with its source.
func (f *Fleet) known(uid types.UID) (*pod.Pod, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[uid]
	if m == nil {
		return nil, false
	}
	return m.pod, true
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

// Holders lists the pods that hold resources of the node, ordered by namespace and name. A pod that has ended is listed
// only while it is being removed: it still holds its name.
func (f *Fleet) Holders() []Other {
	type holder struct {
		worker *worker.Worker
		ended  bool
	}
	f.mu.Lock()
	all, others := make([]holder, 0, len(f.sorted)), make([]Other, 0, len(f.sorted))
	for _, m := range f.sorted {
		switch {
		case m.worker != nil && !m.gone:
			all = append(all, holder{m.worker, m.verdict.Ended})
		case m.restored && !m.verdict.Ended:
			others = append(others, Other{Pod: m.pod})
		}
	}
	f.mu.Unlock()
	for _, h := range all {
		stage, p, stop := h.worker.Life()
		if ended := h.ended || stage == worker.Terminated; !ended || stop != nil && stop.Remove {
			others = append(others, Other{Pod: p, Terminating: stop != nil, EndsBy: endsBy(p, stop)})
		}
	}
	slices.SortFunc(others, func(a, b Other) int { return byName(a.Pod, b.Pod) }) // a name may have changed
	return others
}

// Reserved lists the waiting pods that have a reservation. They get the resources that ending pods still hold.
func (f *Fleet) Reserved() (kept []Other) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.sorted {
		if m.worker == nil && m.verdict.Reserve {
			kept = append(kept, Other{Pod: m.pod})
		}
	}
	return kept
}
