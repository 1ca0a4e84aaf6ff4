package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
	"github.com/berth-run/berth/internal/record/event"
)

// Options are shared by all workers of a node.
type Options struct {
	Steps     []Step
	Observer  Observer
	Probes    Probes
	Statuses  Statuses
	Resizes   Resizes
	Timelines Timelines
	// Owner is set by the fleet.
	Owner      Owner
	MaxBackoff time.Duration
	// Events receives what happens to the pod as a whole.
	Events event.Sink
	Now    func() time.Time
	Log    *slog.Logger
}

// Observer shows the sandboxes and containers of a pod in the runtime.
type Observer interface {
	// Observed returns the last known state of the pod in the runtime, nil if the runtime does not know the pod.
	Observed(types.UID) *pod.Observed
	// Refresh reads the runtime's state of the pod again before it returns.
	Refresh(context.Context, types.UID) error
}

// Probes are the probes of containers.
type Probes interface {
	// Plan returns the verdicts by container id.
	Plan(types.UID) map[string]plan.Probes
}

// Statuses are the statuses that were reported, even by an earlier agent.
type Statuses interface {
	// Kept returns the status that a pod goes on from. It is empty if there is none.
	Kept(types.UID) corev1.PodStatus
}

// Resizes are the changes of the resources of running containers.
type Resizes interface {
	// Restarts returns the ids of containers that must restart to get other resources.
	Restarts(types.UID) map[string]bool
}

// Timelines are the records of how pods started.
type Timelines interface {
	// Context adds the pod's open timeline to a context, if there is one.
	Context(context.Context, types.UID) context.Context
}

// Owner is the part that started a worker.
type Owner interface {
	// Passed is called after each pass and each change of the stage.
	Passed(types.UID)
	// Worked is called with the duration of each operation on a pod.
	Worked(Operation, time.Duration)
	// Panicked sets a pod aside after a panic in the work on it, and returns when the next try may begin.
	Panicked(p *pod.Pod, what string, e *guard.Panic) time.Time
	// SetAside returns when the next try of a pod that is set aside may begin; zero if it is not set aside.
	SetAside(types.UID) time.Time
	// Recovered says that the work on a pod has succeeded again, so that it is no longer set aside.
	Recovered(types.UID)
}

// Stage is a stage of a pod's life.
type Stage int

// The stages in their order. A pod never goes back.
const (
	Syncing Stage = iota
	// Terminating means that containers are being stopped and nothing starts any more.
	Terminating
	// Cleaning means that nothing runs and volumes, cgroup and directories are being removed.
	Cleaning
	// Terminated means that only the pod's object is left.
	Terminated
)

func (s Stage) String() string {
	return [...]string{"syncing", "terminating", "cleaning", "terminated"}[s]
}

// State is a snapshot of a worker.
type State struct {
	Stage Stage
	Pod   *pod.Pod
	Stop  *pod.Stop
	Plan  plan.Plan
	// Prepared names the Prepare steps that are done.
	Prepared []string
	// Failures holds the errors of held tasks by key: step/NAME, sandbox, container/NAME. The key "teardown" holds the
	// error of the teardown.
	Failures map[string]error
}

// Worker takes one pod through its life. Run is its goroutine. Its other methods may be called from any goroutine.
type Worker struct {
	opts  Options
	uid   types.UID
	wake  wake.Signal
	stops chan pod.Stop
	tasks *Tasks
	work  work // used only by the goroutine of Run

	mu       sync.Mutex
	pod      *pod.Pod
	hashes   map[string]string // of the containers of pod, by name
	revision int               // of pod
	prepared prepared
	stop     *pod.Stop
	cancel   context.CancelFunc // interrupts Setup
	stage    Stage
	plan     plan.Plan
	teardown error
	call     call // the one under way in the goroutine of Run
}

// New returns the worker of p. Nothing runs before Run.
func New(opts Options, p *pod.Pod) *Worker {
	w := &Worker{
		opts: opts, uid: p.UID, pod: p, hashes: pod.ContainerHashes(p.Pod),
		wake: wake.New(), stops: make(chan pod.Stop, 1),
		prepared: prepared{}, cancel: func() {},
	}
	w.tasks = newTasks(opts.Now, w)
	return w
}

// Wake starts a pass.
func (w *Worker) Wake() { w.wake.Wake() }

// Update sets a new version of the pod. Failed tasks are retried at once.
func (w *Worker) Update(p *pod.Pod) {
	hashes := pod.ContainerHashes(p.Pod)
	w.mu.Lock()
	w.pod, w.hashes = p, hashes
	w.revision++
	w.mu.Unlock()
	w.tasks.release()
	w.Wake()
}

// ObjectsChanged retries the tasks that failed because of one of these objects.
func (w *Worker) ObjectsChanged(keys map[object.Key]bool) {
	if w.tasks.changed(keys) {
		w.Wake()
	}
}

// Retry retries the tasks whose error matches, even if they are not due.
func (w *Worker) Retry(matches func(error) bool) {
	if w.tasks.retry(matches) {
		w.Wake()
	}
}

// Stop ends the pod and interrupts its setup. A later call can shorten the grace of a running stop (pod.MergeStop).
func (w *Worker) Stop(s pod.Stop) {
	w.mu.Lock()
	merged := pod.MergeStop(w.stop, s)
	w.stop = &merged
	w.cancel()
	select { // the newest stop replaces one that was not received yet
	case <-w.stops:
	default:
	}
	w.stops <- merged
	w.mu.Unlock()
	w.Wake()
}

// State returns a snapshot.
func (w *Worker) State() State {
	failures := w.tasks.failures()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := State{Stage: w.stage, Pod: w.pod, Stop: w.stop, Plan: w.plan, Failures: failures}
	for _, step := range w.opts.Steps {
		if w.prepared.done(step.Name, w.revision) {
			s.Prepared = append(s.Prepared, step.Name)
		}
	}
	if w.teardown != nil {
		s.Failures["teardown"] = w.teardown
	}
	return s
}

// Life returns the parts of State that say whether the pod holds resources. It copies nothing, for callers that look at
// many workers.
func (w *Worker) Life() (Stage, *pod.Pod, *pod.Stop) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stage, w.pod, w.stop
}

func (w *Worker) enter(s Stage) {
	w.mu.Lock()
	w.stage = s
	w.mu.Unlock()
	w.passed()
}

// prepared is the revision of the pod that each Prepare step was last done for.
type prepared map[string]int

// done reports whether a step has succeeded for a revision.
func (p prepared) done(step string, revision int) bool {
	rev, ok := p[step]
	return ok && rev == revision
}
