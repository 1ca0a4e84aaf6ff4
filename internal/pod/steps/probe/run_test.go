package probe

import (
	order "cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
	"github.com/berth-run/berth/internal/pod/worker"
)

// world is a node with one pod: its running containers, the answers of its probes, and a log of all that happens, each
// line with its second.
type world struct {
	t     *testing.T
	begin time.Time
	pod   *pod.Pod
	opts  Options

	mu       sync.Mutex
	observed *pod.Observed
	answers  map[string]func() (int32, error) // by command, which is the probe's name
	lines    []string
}

func newWorld(t *testing.T, containers ...corev1.Container) *world {
	w := &world{t: t, begin: time.Now(), answers: map[string]func() (int32, error){}}
	w.pod = &pod.Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"}}}
	w.pod.Spec.Containers = containers
	w.opts = Options{
		CRI: execFunc(w.exec), Events: w, Log: slog.New(slog.DiscardHandler),
		Observed: w, Statuses: w,
	}
	return w
}

// Observed implements observer.
func (w *world) Observed(types.UID) *pod.Observed {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.observed
}

// MarkVerdict implements statuses.
func (w *world) MarkVerdict(types.UID) { w.line("changed") }

// markFunc, startingFunc and beforeFunc implement statuses, containers and before.
type (
	markFunc     func(types.UID)
	startingFunc func(types.UID, string) bool
	beforeFunc   func(types.UID, string) (Ready, bool)
)

func (f markFunc) MarkVerdict(uid types.UID) { f(uid) }

func (f startingFunc) Starting(uid types.UID, container string) bool { return f(uid, container) }

func (f beforeFunc) Ready(uid types.UID, id string) (Ready, bool) { return f(uid, id) }

func (w *world) line(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, fmt.Sprintf("%g: ", time.Since(w.begin).Seconds())+fmt.Sprintf(format, args...))
}

// lapse lets d pass and returns the log since the last call. Lines of the same second are in lexical order.
func (w *world) lapse(d time.Duration) []string {
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	slices.SortFunc(lines, compareLines)
	return lines
}

func compareLines(a, b string) int {
	second := func(line string) (s float64) {
		_, _ = fmt.Sscanf(line, "%g:", &s)
		return s
	}
	return order.Or(order.Compare(second(a), second(b)), strings.Compare(a, b))
}

func (w *world) expect(d time.Duration, want ...string) {
	w.t.Helper()
	slices.SortFunc(want, compareLines)
	if diff := cmp.Diff(want, w.lapse(d)); diff != "" {
		w.t.Errorf("protocol (-want +got):\n%s", diff)
	}
}

func (w *world) exec(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	name := r.Cmd[0]
	w.line("%s in %s", name, r.ContainerId)
	w.mu.Lock()
	answer := w.answers[name]
	w.mu.Unlock()
	if answer == nil {
		return &runtimeapi.ExecSyncResponse{}, ctx.Err()
	}
	code, err := answer()
	return &runtimeapi.ExecSyncResponse{ExitCode: code, Stdout: []byte("says " + name)}, errors.Join(err, ctx.Err())
}

func (w *world) Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any) {
	w.line("%s %s %s %s", ref.FieldPath, eventType, reason, fmt.Sprintf(format, args...))
}

func (w *world) answer(probe string, f func() (int32, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[probe] = f
}

func exits(code int32) func() (int32, error) { return func() (int32, error) { return code, nil } }

// run sets the running containers: pairs of container name and id.
func (w *world) run(pairs ...string) *worker.Run {
	o := &pod.Observed{Sandboxes: []pod.SandboxStatus{{ID: "box", Ready: true, IPs: []string{"127.0.0.1"}}}}
	for i := 0; i < len(pairs); i += 2 {
		o.Containers = append(o.Containers,
			pod.ContainerStatus{Name: pairs[i], ID: pairs[i+1], State: pod.StateRunning, StartedAt: time.Now()})
	}
	w.mu.Lock()
	w.observed = o
	w.mu.Unlock()
	return &worker.Run{Pod: w.pod, Observed: o}
}

// agent runs Probes until f returns.
func (w *world) agent(f func(p *Probes, s worker.Step)) {
	w.t.Helper()
	p, err := New(w.opts)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := p.Load(); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	f(p, p.Step())
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		w.t.Errorf("Run: %v", err)
	}
}

func (w *world) setup(s worker.Step, r *worker.Run) {
	w.t.Helper()
	if err := s.Setup(w.t.Context(), r); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) verdicts(p *Probes, plans map[string]plan.Probes, ready map[string]Ready) {
	w.t.Helper()
	if diff := cmp.Diff(plans, p.Plan("u1")); diff != "" {
		w.t.Errorf("for the plan (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(ready, p.Ready("u1")); diff != "" {
		w.t.Errorf("for the status (-want +got):\n%s", diff)
	}
}

// execProbe returns a probe that runs the command with that name. change edits it.
func execProbe(name string, change ...func(*corev1.Probe)) *corev1.Probe {
	p := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{name}}}}
	for _, c := range change {
		c(p)
	}
	return p
}

func TestReadinessFlips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, corev1.Container{Name: "app", ReadinessProbe: execProbe("ready")})
		w.agent(func(p *Probes, s worker.Step) {
			w.answer("ready", exits(1))
			w.setup(s, w.run("app", "c1"))
			w.expect(0, "0: ready in c1",
				"0: spec.containers{app} Warning Unhealthy Readiness probe failed: says ready")
			w.verdicts(p, nil, map[string]Ready{"c1": {Started: true}})
			w.answer("ready", exits(0))
			w.expect(10*time.Second, "10: ready in c1", "10: changed")
			w.verdicts(p, nil, map[string]Ready{"c1": {Started: true, Ready: true}})
			w.answer("ready", exits(1))
			const event = " spec.containers{app} Warning Unhealthy Readiness probe failed: says ready"
			w.expect(30*time.Second, "20: ready in c1", "20:"+event, "30: ready in c1", "30:"+event, "40: ready in c1",
				"40:"+event, "40: changed")
			w.verdicts(p, nil, map[string]Ready{"c1": {Started: true}})
		})
	})
}

func TestStartupHoldsBackTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t,
			corev1.Container{Name: "app", StartupProbe: execProbe("start"), ReadinessProbe: execProbe("ready"),
				LivenessProbe: execProbe("live")})
		w.agent(func(p *Probes, s worker.Step) {
			w.answer("start", exits(1))
			w.setup(s, w.run("app", "c1"))
			w.expect(9*time.Second, "0: start in c1") // a failure this early does not count
			w.verdicts(p, map[string]plan.Probes{"c1": {Liveness: plan.Success}}, map[string]Ready{"c1": {}})
			w.answer("start", exits(0))
			w.expect(12*time.Second, "10: start in c1", "10: changed", "10: ready in c1", "10: changed",
				"20: live in c1", "20: ready in c1")
			w.verdicts(p, map[string]plan.Probes{"c1": {Startup: plan.Success, Liveness: plan.Success}},
				map[string]Ready{"c1": {Started: true, Ready: true}})
		})
	})
}

func TestStartupFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, corev1.Container{Name: "app", ReadinessProbe: execProbe("ready"),
			StartupProbe: execProbe("start", func(p *corev1.Probe) { p.FailureThreshold = 2 })})
		w.agent(func(p *Probes, s worker.Step) {
			w.answer("start", exits(1))
			w.setup(s, w.run("app", "c1"))
			const event = " spec.containers{app} Warning Unhealthy Startup probe failed: says start"
			w.expect(time.Minute, "0: start in c1", "10: start in c1", "10:"+event, "20: start in c1", "20:"+event,
				"20: changed")
			w.verdicts(p,
				map[string]plan.Probes{"c1": {Startup: plan.Failure, Message: "Startup probe failed: says start"}},
				map[string]Ready{"c1": {}})
		})
	})
}

func TestLivenessIsOnHoldUntilANewContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, corev1.Container{Name: "app", LivenessProbe: execProbe("live", func(p *corev1.Probe) {
			p.FailureThreshold, p.PeriodSeconds, p.InitialDelaySeconds, p.TerminationGracePeriodSeconds = 1, 3, 5,
				new(int64(7))
		})})
		w.agent(func(p *Probes, s worker.Step) {
			w.answer("live", exits(1))
			w.setup(s, w.run("app", "c1"))
			const event = " spec.containers{app} Warning Unhealthy Liveness probe failed: says live"
			w.expect(time.Minute, "5: live in c1", "5:"+event, "5: changed")
			w.verdicts(p,
				map[string]plan.Probes{"c1": {Liveness: plan.Failure, Grace: new(int64(7)),
					Message: "Liveness probe failed: says live"}},
				map[string]Ready{"c1": {Started: true, Ready: true}})
			w.answer("live", exits(0))
			w.setup(s, w.run("app", "c2"))
			w.verdicts(p, map[string]plan.Probes{"c2": {Liveness: plan.Success}},
				map[string]Ready{"c2": {Started: true, Ready: true}})
			w.expect(7*time.Second, "65: live in c2")
		})
	})
}

func TestErrorIsRetriedAndChangesNoVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t,
			corev1.Container{Name: "app",
				LivenessProbe: execProbe("live", func(p *corev1.Probe) { p.FailureThreshold = 1 })})
		w.agent(func(p *Probes, s worker.Step) {
			w.answer("live", func() (int32, error) { return 0, status.Error(codes.Internal, "no shim") })
			w.setup(s, w.run("app", "c1"))
			w.expect(15*time.Second, "10: live in c1", "10: live in c1", "10: live in c1",
				"10: spec.containers{app} Warning Unhealthy Liveness probe errored and resulted in unknown state: "+
					"run command in container: rpc error: code = Internal desc = no shim")
			w.verdicts(p, map[string]plan.Probes{"c1": {Liveness: plan.Success}},
				map[string]Ready{"c1": {Started: true, Ready: true}})
		})
	})
}

func TestHangingProbeDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, corev1.Container{Name: "a", ReadinessProbe: execProbe("hangs")},
			corev1.Container{Name: "b", ReadinessProbe: execProbe("works")})
		w.opts.Concurrency = 1
		w.agent(func(_ *Probes, s worker.Step) {
			w.answer("hangs", func() (int32, error) { time.Sleep(time.Hour); return 1, nil })
			w.setup(s, w.run("a", "a1"))
			w.expect(0, "0: hangs in a1")
			r := w.run("b", "b1")
			r.Observed.Containers = append(r.Observed.Containers,
				pod.ContainerStatus{Name: "a", ID: "a1", State: pod.StateRunning, StartedAt: w.begin})
			w.setup(s, r)
			w.expect(time.Second, "0.25: works in b1", "0.25: changed")
		})
	})
}

func TestStopKeepsReadinessUntilTheContainersHaveStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t,
			corev1.Container{Name: "app", ReadinessProbe: execProbe("ready"), LivenessProbe: execProbe("live")},
			corev1.Container{Name: "late", StartupProbe: execProbe("start")})
		w.agent(func(p *Probes, s worker.Step) {
			w.answer("start", exits(1))
			r := w.run("app", "c1", "late", "l1")
			w.setup(s, r)
			w.lapse(5 * time.Second)
			if err := s.Teardown(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			w.expect(10*time.Second, "10: ready in c1")
			w.verdicts(p, map[string]plan.Probes{"l1": {}},
				map[string]Ready{"c1": {Started: true, Ready: true}, "l1": {}})
			w.answer("ready", exits(1))
			w.run()
			w.expect(time.Minute)
			w.verdicts(p, map[string]plan.Probes{"l1": {}}, map[string]Ready{"l1": {}})
			if err := s.Teardown(t.Context(), w.run()); err != nil {
				t.Fatal(err)
			}
			if len(p.pods) != 0 {
				t.Errorf("a pod that has stopped is still known: %v", p.pods)
			}
		})
	})
}

func TestContainerThatEndsDuringItsProbeIsNotJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, corev1.Container{Name: "app", ReadinessProbe: execProbe("ready")})
		w.agent(func(p *Probes, s worker.Step) {
			w.answer("ready", func() (int32, error) { w.run(); return 1, nil })
			w.setup(s, w.run("app", "c1"))
			w.expect(time.Minute, "0: ready in c1")
			w.verdicts(p, nil, nil)
		})
	})
}

func TestNotProbedBeforePostStartIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, corev1.Container{Name: "app", ReadinessProbe: execProbe("ready")})
		starting := true
		w.opts.Containers = startingFunc(func(types.UID, string) bool { return starting })
		w.agent(func(p *Probes, s worker.Step) {
			r := w.run("app", "c1")
			w.setup(s, r)
			w.expect(5 * time.Second)
			starting = false
			w.setup(s, r)
			w.expect(0, "5: ready in c1", "5: changed")
		})
	})
}

func TestRestartOfTheAgent(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t,
			corev1.Container{Name: "app", StartupProbe: execProbe("start"), ReadinessProbe: execProbe("ready"),
				LivenessProbe: execProbe("live")})
		w.opts.Dir = dir
		file := filepath.Join(dir, "u1.json")
		var left []byte
		var r *worker.Run
		w.agent(func(_ *Probes, s worker.Step) {
			r = w.run("app", "c1")
			w.setup(s, r)
			w.expect(9*time.Second, "0: start in c1", "0: changed", "0: ready in c1", "0: changed")
			w.answer("live", exits(1))
			w.lapse(14 * time.Second) // liveness failed at 10 and 20
			left = read(t, file)
		})
		if err := os.WriteFile(file, left, 0o600); err != nil { // as after a kill of the agent
			t.Fatal(err)
		}
		w.lapse(10 * time.Second) // no agent runs at 30
		w.agent(func(p *Probes, s worker.Step) {
			w.setup(s, r)
			w.verdicts(p, map[string]plan.Probes{"c1": {Startup: plan.Success, Liveness: plan.Success}},
				map[string]Ready{"c1": {Started: true, Ready: true}})
			w.expect(8*time.Second, "40: live in c1", "40: ready in c1",
				"40: spec.containers{app} Warning Unhealthy Liveness probe failed: says live", "40: changed")
		})
	})
}

// An agent that is killed while it reports a verdict leaves it on disk. The next one reports the same, before and after
// the pod is set up.
func TestVerdictIsOnDiskBeforeItIsReported(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		// The delay keeps the first two verdicts apart. At the same instant, the file could have both before the first
		// is reported.
		once := func(p *corev1.Probe) { p.FailureThreshold, p.InitialDelaySeconds = 1, 2 }
		w := newWorld(t,
			corev1.Container{Name: "app", StartupProbe: execProbe("start"), ReadinessProbe: execProbe("ready", once)})
		w.opts.Dir = dir
		var mu sync.Mutex
		var files []string
		w.opts.Statuses = markFunc(func(types.UID) {
			mu.Lock()
			defer mu.Unlock()
			files = append(files, string(read(t, filepath.Join(dir, "u1.json"))))
		})
		var r *worker.Run
		w.agent(func(_ *Probes, s worker.Step) {
			r = w.run("app", "c1")
			w.setup(s, r)
			w.lapse(5 * time.Second)
			w.answer("ready", exits(1))
			w.lapse(10 * time.Second)
		})
		want := []Ready{{Started: true}, {Started: true, Ready: true}, {Started: true}}
		if len(files) != len(want) {
			t.Fatalf("%d changes were reported, want %d: %q", len(files), len(want), files)
		}
		for i, left := range files {
			if err := os.WriteFile(filepath.Join(dir, "u1.json"), []byte(left), 0o600); err != nil {
				t.Fatal(err)
			}
			w.opts.Statuses = nil
			w.agent(func(p *Probes, s worker.Step) {
				ready := map[string]Ready{"c1": want[i]}
				if diff := cmp.Diff(ready, p.Ready("u1")); diff != "" {
					t.Errorf("change %d, not set up yet (-want +got):\n%s", i, diff)
				}
				w.setup(s, r)
				w.verdicts(p, map[string]plan.Probes{"c1": {Startup: plan.Success}}, ready)
			})
		}
	})
}

func TestFilesOfUnclaimedPodsAreDeleted(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, corev1.Container{Name: "app", ReadinessProbe: execProbe("ready")})
		w.opts.Dir = dir
		left := map[bool]int{}
		count := func(claimed bool) {
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			left[claimed] = len(entries)
		}
		w.agent(func(_ *Probes, s worker.Step) { w.setup(s, w.run("app", "c1")); w.lapse(time.Second) })
		w.agent(func(*Probes, worker.Step) {
			w.lapse(keepUnclaimed - time.Second)
			count(true)
			w.lapse(2 * time.Second)
			count(false)
		})
		if diff := cmp.Diff(map[bool]int{true: 1, false: 0}, left); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
	})
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestPassWithoutChangeWritesNothing(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t,
			corev1.Container{Name: "app", ReadinessProbe: execProbe("ready"), LivenessProbe: execProbe("live")})
		w.opts.Dir = dir
		w.agent(func(p *Probes, s worker.Step) {
			r := w.run("app", "c1")
			w.setup(s, r)
			w.lapse(11 * time.Second)
			if err := os.Remove(filepath.Join(dir, "u1.json")); err != nil {
				t.Fatal(err)
			}
			w.lapse(time.Minute)
			if _, err := os.Stat(filepath.Join(dir, "u1.json")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file was written though nothing changed: %v", err)
			}
			if n := testing.AllocsPerRun(100, func() { w.setup(s, r) }); n != 0 {
				t.Errorf("a pass over a pod that did not change allocates %v times", n)
			}
		})
	})
}

func TestAdoptedContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t,
			corev1.Container{Name: "app", StartupProbe: execProbe("start"), ReadinessProbe: execProbe("ready")})
		w.opts.Rand = func() float64 { return 0.5 }
		w.opts.Before = beforeFunc(func(_ types.UID, id string) (Ready, bool) {
			return Ready{Started: true, Ready: true}, id == "c1"
		})
		r := w.run("app", "c1")
		w.lapse(time.Minute)
		w.agent(func(p *Probes, s worker.Step) {
			w.setup(s, r)
			w.verdicts(p, map[string]plan.Probes{"c1": {Startup: plan.Success}},
				map[string]Ready{"c1": {Started: true, Ready: true}})
			w.expect(8*time.Second, "65: ready in c1")
		})
	})
}

func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, corev1.Container{Name: "app", ReadinessProbe: execProbe("ready")})
		w.agent(func(p *Probes, s worker.Step) {
			w.setup(s, w.run("app", "c1"))
			w.expect(0, "0: ready in c1", "0: changed")
			p.Forget("u1")
			w.expect(time.Minute)
			w.verdicts(p, nil, nil)
		})
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		w := newWorld(t, corev1.Container{Name: "app", ReadinessProbe: execProbe("ready")})
		w.opts.Metrics = reg
		w.agent(func(_ *Probes, s worker.Step) {
			r := w.run("app", "c1")
			w.setup(s, r)
			w.lapse(15 * time.Second)
			w.answer("ready", exits(1))
			w.lapse(10 * time.Second)
			const labels = "container=app namespace=default pod=web "
			want := []string{
				"prober_probe_duration_seconds " + labels + "probe_type=Readiness 2",
				"prober_probe_total " + labels + "pod_uid=u1 probe_type=Readiness result=failed 1",
				"prober_probe_total " + labels + "pod_uid=u1 probe_type=Readiness result=successful 2",
			}
			if diff := cmp.Diff(want, gather(t, reg)); diff != "" {
				t.Errorf("metrics (-want +got):\n%s", diff)
			}
			if err := s.Teardown(t.Context(), w.run()); err != nil {
				t.Fatal(err)
			}
			if left := gather(t, reg); left != nil {
				t.Errorf("a pod that is gone has metrics: %v", left)
			}
		})
		if _, err := New(w.opts); err == nil {
			t.Error("metrics were registered twice")
		}
	})
}

func gather(t *testing.T, reg *prometheus.Registry) (all []string) {
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			var b strings.Builder
			b.WriteString(f.GetName())
			for _, l := range m.Label {
				fmt.Fprintf(&b, " %s=%s", l.GetName(), l.GetValue())
			}
			fmt.Fprintf(&b, " %v", m.GetCounter().GetValue()+float64(m.GetHistogram().GetSampleCount()))
			all = append(all, b.String())
		}
	}
	return all
}

func TestFullDiskIsLoggedOnce(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		w := newWorld(t, corev1.Container{Name: "app", ReadinessProbe: execProbe("ready")})
		w.opts.Log, w.opts.Dir = slog.New(slog.NewTextHandler(&log, nil)), filepath.Join(blocked, "sub")
		p, err := New(w.opts)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		w.setup(p.Step(), w.run("app", "c1"))
		w.lapse(time.Minute)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%d lines, want one:\n%s", n, log.String())
		}
	})
}

func TestMissingOption(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("probes were made without a runtime")
	}
}

// This probe runs over the network and in real time, with the pod's address, a named port, and a redirect that causes a
// warning.
func TestHTTPProbeOfAPod(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(res http.ResponseWriter, _ *http.Request) {
		res.Header().Set("Location", "http://elsewhere.invalid/")
		res.WriteHeader(http.StatusFound)
		_, _ = io.WriteString(res, "moved")
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port := intstr.Parse(u.Port())
	w := newWorld(t, corev1.Container{Name: "app",
		Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: port.IntVal}},
		ReadinessProbe: &corev1.Probe{TimeoutSeconds: 10,
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: "/", Port: intstr.FromString("web")}}}})
	changed := make(chan types.UID)
	w.opts.Statuses = markFunc(func(uid types.UID) { changed <- uid })
	w.agent(func(p *Probes, s worker.Step) {
		w.setup(s, w.run("app", "c1"))
		if uid := <-changed; uid != "u1" {
			t.Errorf("changed %q", uid)
		}
		w.verdicts(p, nil, map[string]Ready{"c1": {Started: true, Ready: true}})
	})
	if len(w.lines) != 1 ||
		!strings.HasSuffix(w.lines[0],
			"spec.containers{app} Warning ProbeWarning Readiness probe warning: Probe terminated redirects, Response "+
				"body: moved") {
		t.Errorf("events: %q", w.lines)
	}
}
