package worker

import (
	"context"
	"time"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
)

// Phase says when and how a step's Setup runs.
type Phase int

const (
	// Prepare steps run in parallel, each as a task, until they have succeeded for this revision of the pod. They are
	// undone only when nothing of the pod runs.
	Prepare Phase = iota
	// Act steps carry out the plan. They are called one after the other at each pass and must not block: work that
	// takes time is a task.
	Act
)

func (p Phase) String() string { return [...]string{"prepare", "act"}[p] }

// Step is one part of a pod's life on this node. It is a value, so that the list of steps can be printed, timed and
// traced.
type Step struct {
	Name  string
	Phase Phase
	// After names the Prepare steps whose Setup must have succeeded before this step starts. Teardown runs in the
	// reverse order.
	After []string
	// Setup makes the node match the pod. It is idempotent: it is called again after a change and after a failure. Its
	// context ends when the pod must stop.
	Setup func(context.Context, *Run) error
	// Teardown undoes Setup. It works even if Setup never ran or ran in an earlier process. It may block. It is nil if
	// there is nothing to undo.
	Teardown func(context.Context, *Run) error
	// Patience is how long one call of Setup, or one task of it, takes at most if nothing hangs. The default is
	// callPatience. It ends nothing: a call that takes longer is reported (Worker.Hangs).
	Patience time.Duration
}

// callPatience is the default of Step.Patience. It also bounds everything else that a worker does, besides the grace
// period of the pod.
const callPatience = time.Minute

// Run holds the inputs of a step for one pass over a pod. Its fields are snapshots.
type Run struct {
	Pod      *pod.Pod
	Observed *pod.Observed
	// Plan is the plan computed from Pod and Observed. It is empty during teardown.
	Plan plan.Plan
	// Stop is set during teardown.
	Stop *pod.Stop
	// Tasks runs work that outlasts the pass.
	Tasks *Tasks
	// Stops delivers changes of Stop during teardown, because a later stop may shorten the grace.
	Stops <-chan pod.Stop
}

// Grace is how long the pod's containers may take to end: the stop's grace, else the pod's own, else 30 s.
func (r *Run) Grace() time.Duration {
	if r.Stop != nil && r.Stop.Grace != nil {
		return *r.Stop.Grace
	}
	if s := r.Pod.DeletionGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	if s := r.Pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return 30 * time.Second
}
