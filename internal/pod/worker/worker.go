package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
)

// Options are what all workers of a node share.
type Options struct {
	Steps []Step
	// Observed is the runtime's last known state of the pod; nil when the
	// runtime does not know it.
	Observed func(types.UID) *pod.Observed
	// Refresh reads the runtime's state of the pod again, before it returns.
	Refresh func(context.Context, types.UID) error
	// Probes are the verdicts by container id.
	Probes func(types.UID) map[string]plan.Probes
	// Last is the status last reported of a pod, also by an earlier agent; nil:
	// none ever.
	Last func(types.UID) corev1.PodStatus
	// Hash are the wanted container hashes of a pod by container name.
	Hash func(*corev1.Pod) map[string]string
	// Restart are the ids of containers that are to restart to get other
	// resources; nil: none ever.
	Restart    func(types.UID) map[string]bool
	MaxBackoff time.Duration
	// Trace adds the pod's open timeline to a context, if there is one.
	Trace func(context.Context, types.UID) context.Context
	// Passed is told after each pass and each change of phase.
	Passed func(types.UID)
	// Worked is told what work on a pod has taken: see work. May be nil.
	Worked func(Operation, time.Duration)
	Now    func() time.Time
	Log    *slog.Logger
}

// Stage is where a pod is in its life.
type Stage int

// The stages, in their order: a pod never goes back.
const (
	Syncing Stage = iota
	// Terminating: containers are being stopped, nothing starts any more.
	Terminating
	// Cleaning: nothing runs; volumes, cgroup and directories are being undone.
	Cleaning
	// Terminated: nothing of the pod is left but its object.
	Terminated
)

func (s Stage) String() string {
	return [...]string{"syncing", "terminating", "cleaning", "terminated"}[s]
}

// State is a worker at one moment.
type State struct {
	Stage Stage
	Pod   *pod.Pod
	Stop  *pod.Stop
	Plan  plan.Plan
	// Prepared names the Prepare steps that are done.
	Prepared []string
	// Failures are the errors of what waits for another try, by task: step/NAME,
	// sandbox, container/NAME; or teardown.
	Failures map[string]error
}

// Worker brings one pod through its life. Run is its goroutine; the other
// methods may be called from any.
type Worker struct {
	opts  Options
	uid   types.UID
	wake  chan struct{}
	stops chan pod.Stop
	tasks *Tasks
	work  work // the goroutine's of Run

	mu       sync.Mutex
	pod      *pod.Pod
	revision int            // of pod
	prepared map[string]int // step to the revision it was done for
	stop     *pod.Stop
	cancel   context.CancelFunc // interrupts Setup
	stage    Stage
	plan     plan.Plan
	teardown error
}

// New makes the worker of p. Nothing runs before Run.
func New(opts Options, p *pod.Pod) *Worker {
	if opts.Restart == nil {
		opts.Restart = func(types.UID) map[string]bool { return nil }
	}
	if opts.Last == nil {
		opts.Last = func(types.UID) corev1.PodStatus { return corev1.PodStatus{} }
	}
	if opts.Worked == nil {
		opts.Worked = func(Operation, time.Duration) {}
	}
	w := &Worker{
		opts: opts, uid: p.UID, pod: p,
		wake: make(chan struct{}, 1), stops: make(chan pod.Stop, 1),
		prepared: map[string]int{}, cancel: func() {},
	}
	w.tasks = newTasks(opts.Now, func(string, error) { w.Wake() })
	return w
}

// Wake has the pod looked at again.
func (w *Worker) Wake() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Update gives the worker a new version of its pod. What failed is tried again
// at once.
func (w *Worker) Update(p *pod.Pod) {
	w.mu.Lock()
	w.pod = p
	w.revision++
	w.mu.Unlock()
	w.tasks.release()
	w.Wake()
}

// ObjectsChanged has what failed for want of one of these objects tried again.
func (w *Worker) ObjectsChanged(keys map[object.Key]bool) {
	if w.tasks.changed(keys) {
		w.Wake()
	}
}

// Retry has what failed for such a reason tried again, whenever its next try is due.
func (w *Worker) Retry(matches func(error) bool) {
	if w.tasks.retry(matches) {
		w.Wake()
	}
}

// Stop ends the pod. Whatever its setup waits for is interrupted. A later call
// can shorten the grace of a stop under way (pod.MergeStop).
func (w *Worker) Stop(s pod.Stop) {
	w.mu.Lock()
	merged := pod.MergeStop(w.stop, s)
	w.stop = &merged
	w.cancel()
	select { // the newest replaces one that nobody took yet
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
		if w.done(step.Name) {
			s.Prepared = append(s.Prepared, step.Name)
		}
	}
	if w.teardown != nil {
		s.Failures["teardown"] = w.teardown
	}
	return s
}

func (w *Worker) enter(s Stage) {
	w.mu.Lock()
	w.stage = s
	w.mu.Unlock()
	w.opts.Passed(w.uid)
}

// done says whether a Prepare step has succeeded for the current revision. The
// caller holds mu.
func (w *Worker) done(step string) bool {
	rev, ok := w.prepared[step]
	return ok && rev == w.revision
}
