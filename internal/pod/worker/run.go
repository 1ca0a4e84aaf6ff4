package worker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline"
)

// longestSleep limits how long a worker waits for a time of the machine's clock, such as a pod's active deadline. The
// clock may be set meanwhile.
const longestSleep = time.Minute

// Run takes the pod through its life and returns nil when nothing of it is left. A pod that ended by itself keeps its
// status until a Stop removes it. When ctx ends, Run detaches: it returns ctx's error after the running calls have
// ended, and leaves everything on the node as it is.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.sync(ctx); err != nil {
		return err
	}
	for {
		w.enter(Terminating)
		late := reportLate(w.opts.Events, w.State())
		err := w.timed(ctx, Kill, w.terminate)
		late()
		if err != nil {
			return err
		}
		w.enter(Cleaning)
		removed := w.removing()
		if err := w.timed(ctx, CleaningUp, w.clean); err != nil {
			return err
		}
		w.enter(Terminated)
		if removed {
			return nil
		}
		if err := w.awaitRemoval(ctx); err != nil {
			return err
		}
	}
}

// reportLate reports a pod that the node ends for its own sake and that still runs after one and a half grace periods,
// and at least 10 s: the runtime does not answer, or the kernel cannot end a process. ended ends the wait.
func reportLate(events event.Sink, s State) (ended func()) {
	if !slices.Contains([]pod.StopReason{pod.StopEvicted, pod.StopPreempting, pod.StopShutdown}, s.Stop.Reason) {
		return func() {}
	}
	grace := (&Run{Pod: s.Pod, Stop: s.Stop}).Grace()
	late := time.AfterFunc(max(grace+grace/2, 10*time.Second), func() {
		events.Event(event.PodRef(s.Pod.Pod), corev1.EventTypeWarning, reason.ExceededGracePeriod,
			"Container runtime did not kill the pod within specified grace period.")
	})
	return func() { late.Stop() }
}

// timed runs until and reports how long it took.
func (w *Worker) timed(ctx context.Context, o Operation, f func(context.Context) error) error {
	began := w.opts.Now()
	if err := w.until(ctx, f); err != nil {
		return err
	}
	w.opts.Owner.Worked(o, w.opts.Now().Sub(began))
	return nil
}

func (w *Worker) removing() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stop.Remove
}

func (w *Worker) awaitRemoval(ctx context.Context) error {
	for !w.removing() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake.C():
		}
	}
	return nil
}

// sync keeps the pod at its plan until it must stop.
func (w *Worker) sync(ctx context.Context) error {
	setup, cancel := context.WithCancel(ctx)
	defer func() { _ = w.calls("running tasks", callPatience, func() error { w.tasks.Wait(); return nil }) }()
	defer cancel()
	w.mu.Lock()
	w.cancel = cancel
	w.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		w.mu.Lock()
		stopped, of, revision := w.stop != nil, w.pod, w.revision
		w.mu.Unlock()
		if stopped {
			return nil
		}
		timer.Stop()
		now := w.opts.Now()
		next := w.turn(setup)
		if ended, began := w.work.pass(w.tasks.busy(), revision, now); ended != "" {
			w.opts.Owner.Worked(ended, now.Sub(began))
		}
		if rest := pod.Rest(len(of.Spec.Containers), w.opts.Now().Sub(now)); rest > 0 {
			_ = retry.Sleep(setup, rest) // it only ends early
		}
		if !next.IsZero() {
			timer.Reset(min(max(0, next.Sub(w.opts.Now())), longestSleep))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake.C():
		case <-timer.C:
		}
	}
}

// turn makes a pass unless the pod is set aside. It returns when the next turn is due, as pass does.
func (w *Worker) turn(ctx context.Context) (next time.Time) {
	until := w.opts.Owner.SetAside(w.uid)
	if w.opts.Now().Before(until) {
		return until
	}
	err := w.attempt("pass", func() error {
		next = w.pass(ctx)
		return nil
	})
	if at, failed := retryTime(err); failed {
		w.passed()
		return at
	}
	if !until.IsZero() && !w.tasks.busy() && w.opts.Owner.SetAside(w.uid).Equal(until) {
		w.opts.Owner.Recovered(w.uid)
		w.passed()
	}
	return next
}

// pass computes the plan once and starts what can be started. It returns when the next pass is due if nothing changes;
// zero for never.
func (w *Worker) pass(ctx context.Context) time.Time {
	w.mu.Lock()
	p, hashes, revision := w.pod, w.hashes, w.revision
	w.mu.Unlock()
	w.tasks.begin()
	last := w.opts.Statuses.Kept(w.uid) // before observed: a container reported in between would look lost
	observed := w.opts.Observer.Observed(w.uid)
	decided := plan.Compute(plan.Input{
		Pod: p.Pod, Observed: observed, Probes: w.opts.Probes.Plan(w.uid), Last: last, Hash: hashes,
		Restart: w.opts.Resizes.Restarts(w.uid),
		Started: started(p, observed), MaxBackoff: w.opts.MaxBackoff, Now: w.opts.Now(),
	})
	w.mu.Lock()
	w.plan = decided
	w.mu.Unlock()
	defer w.passed()
	switch {
	case decided.Done:
		w.Stop(pod.Stop{Reason: pod.StopCompleted, At: w.opts.Now()})
		return time.Time{}
	case decided.DeadlineExceeded:
		const message = "Pod was active on the node longer than the specified deadline"
		w.opts.Events.Event(event.PodRef(p.Pod), corev1.EventTypeNormal, reason.DeadlineExceeded, message)
		w.Stop(pod.Stop{Reason: pod.StopDeadline, At: w.opts.Now(), Message: message})
		return time.Time{}
	}
	ctx = w.opts.Timelines.Context(ctx, w.uid)
	run := &Run{Pod: p, Observed: observed, Plan: decided, Tasks: w.tasks}
	for _, s := range w.opts.Steps {
		w.setup(ctx, s, run, revision)
	}
	return earliest(decided.LookAgain, w.tasks.nextTry())
}

// setup starts or calls a step's Setup if the steps before it are done.
func (w *Worker) setup(ctx context.Context, s Step, run *Run, revision int) {
	w.mu.Lock()
	done := func(name string) bool { return w.prepared.done(name, w.revision) }
	turn := s.Setup != nil && !slices.ContainsFunc(s.After, func(name string) bool { return !done(name) })
	turn = turn && (s.Phase != Prepare || !done(s.Name))
	w.mu.Unlock()
	if !turn {
		return
	}
	task := func(ctx context.Context) (err error) {
		guard.Point("step/"+s.Name, run.Pod.Namespace, run.Pod.Name)
		ctx, span := timeline.Start(ctx, s.Name)
		defer func() { timeline.End(span, err) }()
		if err := s.Setup(ctx, run); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		w.mu.Lock()
		w.prepared[s.Name] = revision
		w.mu.Unlock()
		return nil
	}
	patience := cmp.Or(s.Patience, callPatience)
	w.tasks.startsFor(patience)
	if s.Phase == Prepare {
		w.tasks.Go(ctx, "step/"+s.Name, task)
		return
	}
	if err := w.calls("step/"+s.Name, callPatience, func() error {
		guard.Point("step/"+s.Name, run.Pod.Namespace, run.Pod.Name)
		return s.Setup(ctx, run)
	}); err != nil {
		w.opts.Log.Error("pod step failed, retrying", "step", s.Name, "pod", pod.FullName(run.Pod.Pod), "err", err)
	}
}

// started returns when the pod's life on this node began: the oldest time in its sandboxes, its status in the API, or
// its source. Only the first two survive a restart of the agent. Rounding removes the monotonic clock, because the
// deadline is computed from the machine's clock.
func started(p *pod.Pod, o *pod.Observed) time.Time {
	t := p.Seen.Round(0)
	if s := p.Status.StartTime; s != nil {
		t = earliest(t, s.Time)
	}
	if o != nil {
		for _, s := range o.Sandboxes {
			t = earliest(t, s.CreatedAt)
		}
	}
	return t
}

// until repeats f with growing delays until it succeeds or ctx ends.
func (w *Worker) until(ctx context.Context, f func(context.Context) error) error {
	for retries := retry.Doubling(retryFirst, retryMax); ; {
		err := w.attempt("teardown", func() error { return f(ctx) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.mu.Lock()
		w.teardown = err
		w.mu.Unlock()
		if err == nil {
			w.opts.Owner.Recovered(w.uid)
		}
		w.passed()
		if err == nil {
			return nil
		}
		delay := retries.Step()
		if at, ok := retryTime(err); ok && guard.Of(err) != nil {
			delay = max(0, at.Sub(w.opts.Now()))
		}
		w.opts.Log.Warn("end of a pod failed, retrying", "pod", pod.FullName(w.State().Pod.Pod), "err", err, "delay",
			delay)
		if retry.Sleep(ctx, delay) != nil {
			return ctx.Err()
		}
	}
}

// terminate stops everything that runs. It returns nil only after the runtime has reported that nothing runs.
func (w *Worker) terminate(ctx context.Context) error {
	if err := w.opts.Observer.Refresh(ctx, w.uid); err != nil {
		return fmt.Errorf("read the pod's state: %w", err)
	}
	if err := w.undo(ctx, Act); err != nil {
		return err
	}
	if err := w.opts.Observer.Refresh(ctx, w.uid); err != nil {
		return fmt.Errorf("read the pod's state: %w", err)
	}
	if o := w.opts.Observer.Observed(w.uid); o.Running() {
		return fmt.Errorf("containers of the pod still run")
	}
	return nil
}

func (w *Worker) clean(ctx context.Context) error { return w.undo(ctx, Prepare) }

// undo runs the teardowns of a phase, last step first.
func (w *Worker) undo(ctx context.Context, phase Phase) error {
	for _, s := range slices.Backward(w.opts.Steps) {
		if s.Phase != phase || s.Teardown == nil {
			continue
		}
		w.mu.Lock()
		stop := *w.stop
		run := &Run{Pod: w.pod, Tasks: w.tasks, Stop: &stop, Stops: w.stops}
		w.mu.Unlock()
		run.Observed = w.opts.Observer.Observed(w.uid)
		patience := max(cmp.Or(s.Patience, callPatience), run.Grace()+callPatience)
		if err := w.calls("undo "+s.Name, patience, func() error {
			guard.Point("undo/"+s.Name, run.Pod.Namespace, run.Pod.Name)
			return s.Teardown(ctx, run)
		}); err != nil {
			return fmt.Errorf("undo %s: %w", s.Name, err)
		}
		w.passed()
	}
	return nil
}
