package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
)

// node is an in-memory runtime of one pod, and the steps on it.
type node struct {
	mu       sync.Mutex
	observed *pod.Observed
	last     corev1.PodStatus // that was reported
	log      []string
	worker   *Worker
	panics   int
	aside    time.Time
}

func (n *node) record(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log = append(n.log, what)
}

func (n *node) Event(_ corev1.ObjectReference, kind, why, format string, args ...any) {
	n.record(kind + " " + why + ": " + fmt.Sprintf(format, args...))
}

func (n *node) records() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.log)
}

func (n *node) set(o *pod.Observed) {
	n.mu.Lock()
	n.observed = o
	n.mu.Unlock()
	n.worker.Wake()
}

func (n *node) Observed(types.UID) *pod.Observed {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.observed
}

func (n *node) Refresh(context.Context, types.UID) error                 { return nil }
func (n *node) Plan(types.UID) map[string]plan.Probes                    { return nil }
func (n *node) Kept(types.UID) corev1.PodStatus                          { return n.last }
func (n *node) Restarts(types.UID) map[string]bool                       { return nil }
func (n *node) Context(ctx context.Context, _ types.UID) context.Context { return ctx }
func (n *node) Passed(types.UID)                                         {}
func (n *node) Worked(Operation, time.Duration)                          {}

func (n *node) Panicked(_ *pod.Pod, what string, e *guard.Panic) time.Time {
	n.record(what + ": " + e.Value)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.panics++
	n.aside = time.Now().Add(time.Duration(n.panics) * time.Minute)
	return n.aside
}

func (n *node) SetAside(types.UID) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.aside
}

func (n *node) Recovered(types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.aside = time.Time{}
}

func (n *node) step(name string, after ...string) Step {
	return Step{
		Name: name, After: after,
		Setup:    func(context.Context, *Run) error { n.record("+" + name); return nil },
		Teardown: func(context.Context, *Run) error { n.record("-" + name); return nil },
	}
}

// boxes returns a step that creates the sandbox in a task and removes it.
func (n *node) boxes(after ...string) Step {
	return Step{
		Name: "sandbox", Phase: Act, After: after,
		Setup: func(ctx context.Context, r *Run) error {
			if r.Plan.Sandbox.Op == plan.SandboxCreate {
				r.Tasks.Go(ctx, "sandbox", func(context.Context) error {
					n.record("+sandbox")
					n.set(
						&pod.Observed{Sandboxes: []pod.SandboxStatus{{ID: "s", Ready: true,
							IPs: []string{"10.0.0.1"}}}})
					return nil
				})
			}
			return nil
		},
		Teardown: func(context.Context, *Run) error { n.record("-sandbox"); n.set(nil); return nil },
	}
}

func newWorker(n *node, steps ...Step) *Worker {
	n.worker = New(Options{
		Steps: steps, Observer: n, Probes: n, Statuses: n, Resizes: n, Timelines: n, Owner: n, Events: n,
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}, webPod())
	return n.worker
}

func webPod() *pod.Pod {
	return &pod.Pod{Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "app"}}},
	}, Seen: time.Now()}
}

func start(t *testing.T, w *Worker) (detach func(), ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := make(chan error, 1)
	go func() { c <- w.Run(ctx) }()
	t.Cleanup(cancel)
	return cancel, c
}

func TestStepsInOrderAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		w := newWorker(n, n.step("dir"), n.step("volume", "dir"), n.boxes("dir"))
		_, ended := start(t, w)
		synctest.Wait()
		up := n.records()
		if slices.Index(up, "+dir") != 0 || len(up) != 3 {
			t.Errorf("setup was %v, want dir first, then volume and sandbox once each", up)
		}
		w.Stop(pod.Stop{Reason: pod.StopDeleted, Remove: true})
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"-sandbox", "-volume", "-dir"}, n.records()[3:]); diff != "" {
			t.Errorf("teardown (-want +got):\n%s", diff)
		}
	})
}

// A hanging step, such as a mount or an image pull, delays neither the sandbox nor the end of the pod. Nor does a
// hanging task, such as a container's start that waits for its image or a hook.
func TestStopInterruptsHangingStepsAndTasks(t *testing.T) {
	for name, hang := range map[string]func(n *node, wait func(context.Context) error) Step{
		"step": func(n *node, wait func(context.Context) error) Step {
			s := n.step("hanging")
			s.Setup = func(ctx context.Context, _ *Run) error { return wait(ctx) }
			return s
		},
		"task": func(n *node, wait func(context.Context) error) Step {
			s := n.step("hanging")
			s.Setup = func(ctx context.Context, r *Run) error { r.Tasks.Go(ctx, "container/app", wait); return nil }
			s.Phase = Act
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &node{}
				wait := func(ctx context.Context) error { <-ctx.Done(); n.record("interrupted"); return ctx.Err() }
				w := newWorker(n, n.step("dir"), hang(n, wait), n.boxes("dir"))
				_, ended := start(t, w)
				synctest.Wait()
				begin := time.Now()
				w.Stop(pod.Stop{Reason: pod.StopDeleted, Remove: true})
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took > 50*time.Millisecond {
					t.Errorf("the end took %v", took)
				}
				if diff := cmp.Diff([]string{"+dir", "+sandbox", "interrupted", "-sandbox", "-hanging", "-dir"},
					n.records()); diff != "" {
					t.Errorf("life (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestDeadlineIsAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		w := newWorker(n, n.boxes())
		w.pod.Spec.ActiveDeadlineSeconds = new(int64(30))
		w.pod.Status.StartTime = new(metav1.Now())
		start(t, w)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		want := []string{"+sandbox",
			"Normal DeadlineExceeded: Pod was active on the node longer than the specified deadline", "-sandbox"}
		if diff := cmp.Diff(want, n.records()); diff != "" {
			t.Errorf("life (-want +got):\n%s", diff)
		}
	})
}

// A pod that the node ends for its own sake has half of its grace period more, and at least 10 s.
func TestPodThatOutlivesItsGraceIsReported(t *testing.T) {
	const late = "Warning ExceededGracePeriod: Container runtime did not kill the pod within specified grace period."
	for name, c := range map[string]struct {
		why   pod.StopReason
		grace int64
		takes time.Duration
		want  []string
	}{
		"evicted, in time":        {pod.StopEvicted, 1, 9 * time.Second, []string{"ended"}},
		"evicted, late":           {pod.StopEvicted, 1, 11 * time.Second, []string{late, "ended"}},
		"preempted, in time":      {pod.StopPreempting, 30, 44 * time.Second, []string{"ended"}},
		"preempted, late":         {pod.StopPreempting, 30, 46 * time.Second, []string{late, "ended"}},
		"deleted: nobody waits":   {pod.StopDeleted, 1, time.Minute, []string{"ended"}},
		"shutdown of the machine": {pod.StopShutdown, 1, time.Minute, []string{late, "ended"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &node{}
				w := newWorker(n, Step{Name: "act", Phase: Act, Teardown: func(context.Context, *Run) error {
					time.Sleep(c.takes)
					n.record("ended")
					return nil
				}})
				_, ended := start(t, w)
				synctest.Wait()
				w.Stop(pod.Stop{Reason: c.why, Grace: new(time.Duration(c.grace) * time.Second), Remove: true})
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, n.records()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The plan of an ended pod starts nothing: the status last reported says that it has ended.
func TestEndedPodIsNotSetUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		w := newWorker(n, n.step("dir"), n.boxes("dir"))
		n.last = corev1.PodStatus{Phase: corev1.PodSucceeded}
		start(t, w)
		synctest.Wait()
		if diff := cmp.Diff([]string{"-sandbox", "-dir"}, n.records()); diff != "" || w.State().Stage != Terminated {
			t.Errorf("stage %v, life (-want +got):\n%s", w.State().Stage, diff)
		}
	})
}

func TestFailuresAreRetriedWithGrowingDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		begin, tries := time.Now(), []time.Duration(nil)
		volume := n.step("volume")
		volume.Setup = func(context.Context, *Run) error {
			tries = append(tries, time.Since(begin))
			switch len(tries) {
			case 4:
				return RetryAt(time.Now().Add(time.Minute), errors.New("at its own time"))
			case 5:
				return nil
			}
			return errors.New("no such device")
		}
		w := newWorker(n, volume)
		start(t, w)
		time.Sleep(10 * time.Second)
		if diff := cmp.Diff("volume: at its own time", w.State().Failures["step/volume"].Error()); diff != "" {
			t.Error(diff)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []time.Duration{0, 500 * time.Millisecond, 1500 * time.Millisecond, 3500 * time.Millisecond,
			63500 * time.Millisecond}
		if diff := cmp.Diff(want, tries); diff != "" {
			t.Errorf("tries (-want +got):\n%s", diff)
		}
		if s := w.State(); len(s.Failures) != 0 || !slices.Contains(s.Prepared, "volume") {
			t.Errorf("state after success: %+v", s)
		}
	})
}

func TestDetachTouchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		w := newWorker(n, n.step("dir"), n.boxes("dir"))
		detach, ended := start(t, w)
		synctest.Wait()
		detach()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v, want the context's error", err)
		}
		if diff := cmp.Diff([]string{"+dir", "+sandbox"}, n.records()); diff != "" {
			t.Errorf("life (-want +got):\n%s", diff)
		}
	})
}

// A pod that ends by itself is torn down but stays until it is removed.
func TestCompletedPodStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		w := newWorker(n, n.step("dir"), n.boxes("dir"))
		_, ended := start(t, w)
		synctest.Wait()
		n.set(&pod.Observed{
			Sandboxes:  []pod.SandboxStatus{{ID: "s", Ready: true, IPs: []string{"10.0.0.1"}}},
			Containers: []pod.ContainerStatus{{ID: "c", Name: "app", SandboxID: "s", State: pod.StateExited}},
		})
		synctest.Wait()
		s := w.State()
		if s.Stage != Terminated || s.Stop.Reason != pod.StopCompleted {
			t.Fatalf("state is %v, stop %+v", s.Stage, s.Stop)
		}
		w.Stop(pod.Stop{Reason: pod.StopDeleted, Remove: true})
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if got := w.State().Stop; got.Reason != pod.StopCompleted || !got.Remove {
			t.Errorf("stop is %+v, want the first reason and the removal", got)
		}
	})
}

// A teardown while containers still run is retried until they have ended.
func TestTeardownWaitsUntilContainersHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		box := n.boxes("dir")
		box.Teardown = func(context.Context, *Run) error { n.record("-sandbox"); return nil }
		w := newWorker(n, n.step("dir"), box)
		_, ended := start(t, w)
		synctest.Wait()
		w.Stop(pod.Stop{Reason: pod.StopDeleted, Remove: true})
		time.Sleep(time.Second)
		if s := w.State(); s.Stage != Terminating || s.Failures["teardown"] == nil {
			t.Errorf("state is %v with failures %v", s.Stage, s.Failures)
		}
		n.set(nil)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if slices.Index(n.records(), "-dir") != len(n.records())-1 {
			t.Errorf("life was %v, want the directory last", n.records())
		}
	})
}

// Each change of a container wakes the worker. With many containers it rests after a pass for as long as the pass took,
// unless the pod must stop.
func TestPassesOverManyContainersRest(t *testing.T) {
	for name, test := range map[string]struct{ containers, soon, late int }{"many": {17, 1, 2}, "few": {16, 2, 3}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &node{}
				w := newWorker(n, Step{Name: "slow", Phase: Act, Setup: func(context.Context, *Run) error {
					n.record("pass")
					time.Sleep(100 * time.Millisecond)
					return nil
				}})
				p := webPod()
				p.Spec.Containers = make([]corev1.Container, test.containers)
				w.Update(p)
				_, ended := start(t, w)
				time.Sleep(110 * time.Millisecond)
				w.Wake()
				for _, want := range []int{test.soon, test.late} {
					time.Sleep(70 * time.Millisecond)
					if got := n.records(); len(got) != want {
						t.Errorf("passes: %d, want %d", len(got), want)
					}
				}
				time.Sleep(60 * time.Millisecond) // the worker with many containers rests again, the other one sleeps
				began := time.Now()
				w.Stop(pod.Stop{Reason: pod.StopDeleted, Remove: true})
				if err := <-ended; err != nil || time.Since(began) != 0 {
					t.Errorf("ended after %v: %v", time.Since(began), err)
				}
			})
		})
	}
}
