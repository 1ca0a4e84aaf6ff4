package status

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/observed"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/telemetry"
	"github.com/berth-run/berth/internal/pod/aside"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/plan"
	"github.com/berth-run/berth/internal/pod/podstatus"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/timeline"
)

// world is a fleet with statuses whose runtime and probes are the test's.
type world struct {
	t        *testing.T
	desired  *store.Table[types.UID, *pod.Pod]
	observed *observed.Table
	ready    map[string]podstatus.Probes
	fleet    *fleet.Fleet
	parts    fleet.Parts
	statuses *Statuses
	stale    *Stale
	refuse   string // the message of a pod that waits
	mu       sync.Mutex
	reported string // the last status for the API server; under mu
	rows     *store.Watcher[types.NamespacedName, *corev1.Pod]
	forgot   []string
	hold     chan struct{} // when set, the next computation waits for it
	asides   *aside.Register
	panics   int // so many computations panic
}

func inWorld(t *testing.T, body func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, desired: store.New[types.UID, *pod.Pod](), observed: observed.New(),
			ready: map[string]podstatus.Probes{}}
		w.build()
		w.rows = w.statuses.Pods().Watch()
		ctx, cancel := context.WithCancel(t.Context())
		var loops sync.WaitGroup
		loops.Go(func() { _ = w.fleet.Run(ctx, w.parts) })
		loops.Go(func() { _ = w.statuses.Run(ctx) })
		body(w)
		cancel()
		loops.Wait()
	})
}

func (w *world) build() {
	synced := make(chan struct{})
	close(synced)
	log := slog.New(slog.DiscardHandler)
	recorder := timeline.NewRecorder(timeline.RecorderOptions{Log: log})
	starts, err := telemetry.NewStarts(prometheus.NewRegistry(), recorder, time.Now)
	if err != nil {
		w.t.Fatal(err)
	}
	record := NewRecord(RecordOptions{Log: log})
	w.stale = NewStale()
	w.asides = aside.New(aside.Options{Events: noEvents{}, Now: time.Now, Log: log})
	w.observed.MarkSynced()
	w.fleet = fleet.New(time.Now, log)
	w.statuses = New(Options{Record: record, Stale: w.stale, Fleet: w.fleet, Source: w, Reporter: w, Starts: starts,
		Asides:   w.asides,
		Timeline: recorder, Keepers: []Keeper{w}})
	w.parts = fleet.Parts{
		Desired: w.desired, Observed: w.observed, DesiredSynced: synced,
		Admission: w, Leftovers: w, Manifests: w, Prefetcher: w, Statuses: w.statuses, Asides: w.asides, Idle: w,
		Worker: worker.Options{
			Steps:    []worker.Step{{Name: "act", Phase: worker.Act, Teardown: w.kill}},
			Observer: w, Probes: w, Statuses: record, Resizes: w, Timelines: w, Events: noEvents{},
			Now: time.Now, Log: log,
		},
	}
}

// Allocate implements fleet.Admission.
func (w *world) Allocate(want *pod.Pod, _ []fleet.Other) *pod.Pod { return want }

// Admit implements fleet.Admission.
func (w *world) Admit(*pod.Pod, []fleet.Other) fleet.Verdict {
	return fleet.Verdict{Admit: w.refuse == "", Reason: "Waits", Message: w.refuse}
}

// Add implements Source.
func (w *world) Add(_ fleet.Member, in *podstatus.Input) {
	in.Observed, in.Probes, in.Now = w.Observed(in.Pod.UID), w.ready, time.Now()
	if w.panics > 0 {
		w.panics--
		panic("broken status")
	}
	if hold := w.hold; hold != nil {
		w.hold = nil
		<-hold
	}
}

func (w *world) Observed(uid types.UID) *pod.Observed                     { return w.observed.Observed(uid) }
func (w *world) Refresh(context.Context, types.UID) error                 { return nil }
func (w *world) Plan(types.UID) map[string]plan.Probes                    { return nil }
func (w *world) Restarts(types.UID) map[string]bool                       { return nil }
func (w *world) Context(ctx context.Context, _ types.UID) context.Context { return ctx }
func (w *world) Pods() ([]types.UID, error)                               { return nil, nil }
func (w *world) MayWant(*pod.Observed) bool                               { return false }
func (w *world) WantsChanged() <-chan struct{}                            { return nil }
func (w *world) Stir()                                                    {}
func (w *world) Prefetch(context.Context, *pod.Pod)                       {}

func (w *world) kill(_ context.Context, r *worker.Run) error {
	time.Sleep(time.Second)
	w.observed.Delete(r.Pod.UID)
	return nil
}

// Report implements Reporter.
func (w *world) Report(m fleet.Member, s corev1.PodStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !m.Verdict.Given() {
		w.t.Errorf("%s was reported before admission has answered", m.Pod.UID)
	}
	w.reported = fmt.Sprintf("%s %s", m.Pod.UID, short(s))
}

// Forget implements Keeper. It notes whether the row of a pod that is gone is still there.
func (w *world) Forget(uid types.UID) {
	_, there := w.statuses.Pods().Get(name("web"))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgot = append(w.forgot, fmt.Sprintf("%s with row %v", uid, there))
}

// noEvents is an event.Sink that drops events.
type noEvents struct{}

func (noEvents) Event(corev1.ObjectReference, string, string, string, ...any) {}

func short(s corev1.PodStatus) string {
	text := string(s.Phase)
	if podstatus.Ready(s) {
		text += " ready"
	}
	if s.Message != "" {
		text += ": " + s.Message
	}
	return text
}

func name(n string) types.NamespacedName { return types.NamespacedName{Namespace: "default", Name: n} }

// want puts a version of the pod web into the desired table.
func (w *world) want(uid types.UID, labels map[string]string) {
	w.desired.Put(uid, &pod.Pod{Seen: time.Now(), Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: uid, Labels: labels},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "app",
			ReadinessProbe: &corev1.Probe{}}}},
	}})
}

func (w *world) runs(uid types.UID) {
	w.observed.Put(uid, &pod.Observed{UID: uid, Sandboxes: []pod.SandboxStatus{{ID: "box", Ready: true}},
		Containers: []pod.ContainerStatus{{ID: "c1", Name: "app", SandboxID: "box", State: pod.StateRunning}}})
}

func (w *world) forgotten() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.forgot)
}

// sees waits until nothing moves and compares the last status for the API server and the changes of rows since.
func (w *world) sees(what, reported string, rows ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	if w.reported != reported {
		w.t.Errorf("%s: the API server sees %q, want %q", what, w.reported, reported)
	}
	w.mu.Unlock()
	var got []string
	for _, c := range w.rows.Changes() {
		row := string(c.Value.UID) + " " + short(c.Value.Status)
		if c.Value.DeletionTimestamp != nil {
			row += " deleting"
		}
		if v := c.Value.Labels["v"]; v != "" {
			row += " v" + v
		}
		if c.Deleted {
			row = string(c.Value.UID) + " gone"
		}
		got = append(got, row)
	}
	if diff := cmp.Diff(rows, got); diff != "" {
		w.t.Errorf("%s: rows (-want +got):\n%s", what, diff)
	}
}

func TestStatusOfAPodsWholeLife(t *testing.T) {
	inWorld(t, func(w *world) {
		w.want("u1", nil)
		w.sees("a pod comes", "u1 Pending", "u1 Pending")
		w.runs("u1")
		w.sees("its container runs", "u1 Running", "u1 Running")
		w.ready["c1"] = podstatus.Probes{Started: true, Ready: true}
		w.stale.MarkVerdict("u1")
		w.sees("a probe succeeds", "u1 Running ready", "u1 Running ready")
		w.stale.MarkAll()
		w.sees("nothing has changed", "u1 Running ready")
		w.want("u1", map[string]string{"v": "2"})
		w.sees("another version is wanted", "u1 Running ready", "u1 Running ready v2")
		w.desired.Delete("u1")
		w.sees("it is to end", "u1 Running ready", "u1 Running ready deleting v2")
		time.Sleep(time.Minute)
		w.sees("it is gone", "u1 Failed", "u1 gone")
		if diff := cmp.Diff([]string{"u1 with row true"}, w.forgotten()); diff != "" {
			t.Errorf("the row goes last (-want +got):\n%s", diff)
		}
		w.stale.Mark("u1")
		w.sees("others than the fleet still know it", "u1 Failed")
	})
}

func TestStatusOfAPodThatWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		w.refuse = "waiting for room"
		w.want("u1", nil)
		w.sees("it waits", "u1 Pending: waiting for room", "u1 Pending: waiting for room")
		w.refuse = ""
		w.fleet.Reconsider()
		w.sees("it is admitted", "u1 Pending", "u1 Pending")
		w.desired.Delete("u1")
		time.Sleep(time.Minute)
		w.sees("it is gone", "u1 Failed", "u1 gone")
	})
}

// A name is shown for its predecessor until nothing of that is left.
func TestSuccessorIsShownAfterItsPredecessor(t *testing.T) {
	inWorld(t, func(w *world) {
		w.want("u1", nil)
		w.runs("u1")
		w.sees("the first runs", "u1 Running", "u1 Running")
		w.want("u2", nil)
		w.sees("the second comes", "u2 Pending")
		w.desired.Delete("u1")
		w.sees("the first is to end", "u1 Running", "u1 Running deleting")
		time.Sleep(time.Minute)
		w.runs("u2")
		w.sees("the second runs", "u2 Running", "u2 Running")
	})
}

// A successor that does not change any more is shown too when its predecessor has gone.
func TestQuietSuccessorIsShownAfterItsPredecessor(t *testing.T) {
	inWorld(t, func(w *world) {
		w.want("u1", nil)
		w.runs("u1")
		w.sees("the first runs", "u1 Running", "u1 Running")
		w.want("u2", nil)
		w.runs("u2")
		w.sees("the second runs too", "u2 Running")
		w.desired.Delete("u1")
		time.Sleep(time.Minute)
		w.sees("the first is gone", "u2 Running", "u2 Running")
	})
}

// What was computed from older facts is never published over what was computed from newer ones.
func TestStatusNeverGoesBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.want("u1", nil)
		w.sees("a pod comes", "u1 Pending", "u1 Pending")
		hold := make(chan struct{})
		w.hold = hold
		w.stale.Mark("u1") // and Run has read that nothing runs
		synctest.Wait()
		w.runs("u1")
		synctest.Wait()
		close(hold)
		w.sees("the newer facts win", "u1 Running", "u1 Running")
	})
}

// A pod that comes back under its UID begins anew.
func TestStatusOfAPodThatComesBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.want("u1", nil)
		w.runs("u1")
		w.sees("it runs", "u1 Running", "u1 Running")
		w.desired.Delete("u1")
		synctest.Wait()
		w.want("u1", map[string]string{"v": "2"})
		time.Sleep(time.Minute)
		w.sees("it is there again", "u1 Pending", "u1 Pending v2")
		if diff := cmp.Diff([]string{"u1 with row true"}, w.forgotten()); diff != "" {
			t.Errorf("forgotten once (-want +got):\n%s", diff)
		}
	})
}

func TestFailures(t *testing.T) {
	exited := func(name string, code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}
	}
	got := failures(corev1.PodStatus{
		InitContainerStatuses: []corev1.ContainerStatus{exited("init", 0)},
		ContainerStatuses:     []corev1.ContainerStatus{exited("a", 7), {Name: "b"}, exited("c", 137)},
	})
	if want := "container a ended with exit code 7; container c ended with exit code 137"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A status whose computation panics sets its pod aside: the last status stays, with the condition, and the next try
// shows the real one again. The rows of other pods are not affected.
func TestPanicOfStatusSetsPodAside(t *testing.T) {
	inWorld(t, func(w *world) {
		w.want("u1", nil)
		w.runs("u1")
		w.sees("its container runs", "u1 Running", "u1 Running")
		w.panics = 2
		w.ready["c1"] = podstatus.Probes{Started: true, Ready: true}
		w.stale.Mark("u1")
		w.sees("the computation panics", "u1 Running", "u1 Running")
		row, _ := w.statuses.Pods().Get(name("web"))
		c := row.Status.Conditions[len(row.Status.Conditions)-1]
		if c.Type != pod.ConditionSetAside || c.Status != corev1.ConditionTrue ||
			!strings.Contains(c.Message, "broken status, in ") || !strings.Contains(c.Message, "status_test.go:") {
			t.Errorf("condition %+v", c)
		}
		time.Sleep(time.Second) // the first delay, after which it panics once more
		synctest.Wait()
		if until := w.asides.Until("u1"); time.Until(until) != 2*time.Second {
			t.Errorf("the second delay ends in %v, want 2s", time.Until(until))
		}
		time.Sleep(2 * time.Second)
		w.sees("the third try succeeds", "u1 Running ready", "u1 Running ready")
		row, _ = w.statuses.Pods().Get(name("web"))
		for _, c := range row.Status.Conditions {
			if c.Type == pod.ConditionSetAside {
				t.Errorf("the condition is still there: %+v", c)
			}
		}
	})
}
