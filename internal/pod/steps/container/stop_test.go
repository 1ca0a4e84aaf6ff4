package container

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri/critest/fake"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
)

// since returns the runtime calls after the first n.
func (b *bench) since(n int) []string { return b.calls()[n:] }

// up starts the pod and returns how many runtime calls that made.
func (b *bench) up() int {
	b.t.Helper()
	b.sync()
	b.events()
	b.lifecycle.calls = nil
	return len(b.calls())
}

func sleeping(seconds int64) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}}
}

func withPreStop(c corev1.Container, h *corev1.LifecycleHandler) corev1.Container {
	c.Lifecycle = &corev1.Lifecycle{PreStop: h}
	return c
}

func TestLivenessKill(t *testing.T) {
	own := int64(7)
	for name, grace := range map[string]*int64{"pod's grace": nil, "probe's grace": &own} {
		t.Run(name, func(t *testing.T) {
			app := withPreStop(runs("app", "stubborn"), execHandler("wait", "2s"))
			onBench(t, corev1.PodSpec{Containers: []corev1.Container{app, runs("other", "sleep")}},
				func(t *testing.T, b *bench) {
					n := b.up()
					b.probes = map[string]plan.Probes{b.newest("app").ID: {Liveness: plan.Failure, Grace: grace}}
					begin := time.Now()
					b.pass()
					b.tasks.wg.Wait()
					total, timeout := 30*time.Second, "stop app 28"
					if grace != nil {
						total, timeout = 7*time.Second, "stop app 5"
					}
					if took := time.Since(begin); took != total {
						t.Errorf("took %v, want %v", took, total)
					}
					if diff := cmp.Diff([]string{"exec app [/workload wait 2s]", timeout}, b.since(n)); diff != "" {
						t.Error(diff)
					}
					if diff := cmp.Diff([]string{"PreStop container-2", "PostStop container-2"},
						b.lifecycle.calls); diff != "" {
						t.Error(diff)
					}
					if diff := cmp.Diff(
						[]string{
							"spec.containers{app} Normal Killing: Container app failed liveness probe, will " +
								"be restarted"}, b.events()); diff != "" {
						t.Error(diff)
					}
					if seen, _ := b.pleg.Observed(b.pod.UID).Container("app"); seen.State != pod.StateExited {
						t.Errorf("the task ended while it is observed as %s", seen.State)
					}
				})
		})
	}
}

func TestTeardownOrder(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	first, second := runs("first", "sleep"), runs("second", "sleep")
	first.RestartPolicy, second.RestartPolicy = &always, &always
	first = withPreStop(first, sleeping(1))
	spec := corev1.PodSpec{
		InitContainers: []corev1.Container{first, second},
		Containers:     []corev1.Container{runs("app", "sleep"), runs("slow", "stubborn")},
	}
	onBench(t, spec, func(t *testing.T, b *bench) {
		n := b.up()
		if err := b.stop(t.Context(), 10*time.Second); err != nil {
			t.Fatal(err)
		}
		got := b.since(n)
		// The apps end in any order. They use up the grace period, so all sidecars get the minimum.
		want := []string{"stop app 10", "stop slow 10", "stop second 2", "stop first 2"}
		if len(got) == 4 && got[0] == want[1] {
			got[0], got[1] = got[1], got[0]
		}
		if len(got) != 4 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("calls %v, want %v", got, want)
		}
		for name, state := range b.states() {
			if state != "exited" {
				t.Errorf("%s is %s", name, state)
			}
		}
		if b.links() != nil {
			t.Errorf("log links of a removed pod: %v", b.links())
		}
	})
}

func TestSidecarsEndInReverse(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	first, second := runs("first", "sleep"), runs("second", "sleep")
	first.RestartPolicy, second.RestartPolicy = &always, &always
	spec := corev1.PodSpec{
		InitContainers: []corev1.Container{first, second},
		Containers:     []corev1.Container{withPreStop(runs("app", "sleep"), sleeping(3))},
	}
	onBench(t, spec, func(t *testing.T, b *bench) {
		n := b.up()
		if err := b.stop(t.Context(), 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"stop app 7", "stop second 7", "stop first 7"}, b.since(n)); diff != "" {
			t.Error(diff)
		}
		want := []string{"spec.containers{app} Normal Killing: Stopping container app",
			"spec.initContainers{first} Normal Killing: Stopping container first",
			"spec.initContainers{second} Normal Killing: Stopping container second"}
		if diff := cmp.Diff(want, sorted(b.events())); diff != "" {
			t.Error(diff)
		}
	})
}

func TestGrace(t *testing.T) {
	cases := []struct {
		name    string
		preStop *corev1.LifecycleHandler
		grace   time.Duration
		calls   []string
		took    time.Duration
		events  []string
	}{
		{name: "plain", grace: 5 * time.Second, calls: []string{"stop app 5"}, took: 5 * time.Second},
		{name: "none", grace: 0, preStop: sleeping(1), calls: []string{"stop app 2"}, took: 2 * time.Second},
		{name: "preStop takes a part", grace: 5 * time.Second, preStop: sleeping(2), calls: []string{"stop app 3"},
			took: 5 * time.Second},
		{name: "preStop leaves too little", grace: 5 * time.Second, preStop: sleeping(4), calls: []string{"stop app 2"},
			took: 6 * time.Second},
		{name: "preStop takes all", grace: 5 * time.Second, preStop: execHandler("sleep"),
			calls: []string{"exec app [/workload sleep]", "stop app 2"}, took: 7 * time.Second,
			events: []string{"spec.containers{app} Warning FailedPreStopHook: PreStopHook failed"}},
		{name: "preStop fails", grace: 5 * time.Second, preStop: execHandler("false"),
			calls: []string{"exec app [/workload false]", "stop app 5"}, took: 5 * time.Second,
			events: []string{"spec.containers{app} Warning FailedPreStopHook: PreStopHook failed"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			onBench(t, corev1.PodSpec{Containers: []corev1.Container{withPreStop(runs("app", "stubborn"), c.preStop)}},
				func(t *testing.T, b *bench) {
					n, begin := b.up(), time.Now()
					if err := b.stop(t.Context(), c.grace); err != nil {
						t.Error(err)
					}
					if took := time.Since(begin); took != c.took {
						t.Errorf("took %v, want %v", took, c.took)
					}
					if diff := cmp.Diff(c.calls, b.since(n)); diff != "" {
						t.Error(diff)
					}
					want := append([]string{"spec.containers{app} Normal Killing: Stopping container app"}, c.events...)
					if diff := cmp.Diff(want, b.events()); diff != "" {
						t.Error(diff)
					}
				})
		})
	}
}

func TestLaterStopShortens(t *testing.T) {
	cases := []struct {
		name    string
		preStop *corev1.LifecycleHandler
		after   time.Duration // of the first stop, whose grace is 30 s
		grace   time.Duration
		calls   []string
		took    time.Duration
	}{
		{"while it stops", nil, 5 * time.Second, 4 * time.Second, []string{"stop app 30", "stop app 4"},
			9 * time.Second},
		{"at once", nil, 5 * time.Second, 0, []string{"stop app 30", "stop app 0"}, 5 * time.Second},
		{"at once and soon", nil, time.Second, 0, []string{"stop app 30", "stop app 1"}, 2 * time.Second},
		{"longer", nil, 5 * time.Second, time.Minute, []string{"stop app 30"}, 30 * time.Second},
		{"in preStop", sleeping(20), 5 * time.Second, 4 * time.Second, []string{"stop app 2"}, 11 * time.Second},
		{"in preStop, at once", sleeping(20), 5 * time.Second, 0, []string{"stop app 2"}, 7 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			onBench(t, corev1.PodSpec{Containers: []corev1.Container{withPreStop(runs("app", "stubborn"), c.preStop)}},
				func(t *testing.T, b *bench) {
					n, begin := b.up(), time.Now()
					result := make(chan error)
					go func() { result <- b.stop(t.Context(), 30*time.Second) }()
					time.Sleep(c.after)
					b.stops <- pod.Stop{Reason: "Deleted", Grace: &c.grace}
					if err := <-result; err != nil {
						t.Error(err)
					}
					if took := time.Since(begin); took != c.took {
						t.Errorf("took %v, want %v", took, c.took)
					}
					if diff := cmp.Diff(c.calls, b.since(n)); diff != "" {
						t.Error(diff)
					}
				})
		})
	}
}

// A teardown after a failed one continues it: preStop does not run again, and the grace period does not start over.
func TestTeardownContinuesAFailedStop(t *testing.T) {
	onBench(
		t, corev1.PodSpec{Containers: []corev1.Container{withPreStop(runs("app", "stubborn"),
			execHandler("wait", "2s"))}}, func(t *testing.T, b *bench) {
			n := b.up()
			remove := b.fake.Inject(fake.Fault{Method: "StopContainer", Err: errors.New("busy")})
			err := b.stop(t.Context(), 20*time.Second)
			if err == nil || err.Error() != `stop container "app": StopContainer: busy` {
				t.Errorf("error %v", err)
			}
			remove()
			time.Sleep(8 * time.Second)
			if err := b.stop(t.Context(), 20*time.Second); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff([]string{"exec app [/workload wait 2s]", "stop app 18", "stop app 10"},
				b.since(n)); diff != "" {
				t.Error(diff)
			}
			want := []string{"spec.containers{app} Normal Killing: Stopping container app",
				`Warning FailedKillPod: error killing pod: stop container "app": StopContainer: busy`}
			if diff := cmp.Diff(want, b.events()); diff != "" {
				t.Error(diff)
			}
		})
}

// The end of the pod takes over a stop that began for another reason.
func TestTeardownTakesOverAKill(t *testing.T) {
	onBench(
		t, corev1.PodSpec{Containers: []corev1.Container{withPreStop(runs("app", "stubborn"),
			execHandler("wait", "2s"))}}, func(t *testing.T, b *bench) {
			n, begin := b.up(), time.Now()
			b.probes = map[string]plan.Probes{b.newest("app").ID: {Liveness: plan.Failure}}
			b.pass()
			time.Sleep(10 * time.Second)
			if err := b.stop(t.Context(), 60*time.Second); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took != 30*time.Second {
				t.Errorf("took %v", took)
			}
			if diff := cmp.Diff([]string{"exec app [/workload wait 2s]", "stop app 28", "stop app 20"},
				b.since(n)); diff != "" {
				t.Error(diff)
			}
		})
}

// An agent that ends leaves the containers as they are.
func TestEndOfTheAgentStopsNothing(t *testing.T) {
	for name, preStop := range map[string]*corev1.LifecycleHandler{"in preStop": sleeping(20), "in stop": nil} {
		t.Run(name, func(t *testing.T) {
			onBench(t, corev1.PodSpec{Containers: []corev1.Container{withPreStop(runs("app", "stubborn"), preStop)}},
				func(t *testing.T, b *bench) {
					n := b.up()
					ctx, cancel := context.WithCancel(t.Context())
					result := make(chan error)
					go func() { result <- b.stop(ctx, 30*time.Second) }()
					time.Sleep(time.Second)
					begin := time.Now()
					cancel()
					if err := <-result; !errors.Is(err, context.Canceled) || time.Since(begin) != 0 {
						t.Errorf("%v after %v", err, time.Since(begin))
					}
					if b.states()["app"] != "running" || preStop != nil && len(b.since(n)) != 0 {
						t.Errorf("app is %s after %v", b.states()["app"], b.since(n))
					}
					for _, e := range b.events() {
						if e != "spec.containers{app} Normal Killing: Stopping container app" {
							t.Errorf("event %q", e)
						}
					}
				})
		})
	}
}

func TestStopOfContainerThatIsNotInTheSpec(t *testing.T) {
	old := withPreStop(runs("old", "sleep"), execHandler("print", "bye"))
	onBench(t, corev1.PodSpec{Containers: []corev1.Container{runs("app", "sleep"), old}}, func(t *testing.T, b *bench) {
		n := b.up()
		b.pod.Spec.Containers = b.pod.Spec.Containers[:1]
		b.fake.Exit(b.newest("app").ID, 0, "")
		if err := b.stop(t.Context(), 5*time.Second); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"exec old [/workload print bye]", "stop old 5"}, b.since(n)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestStopOfMissingContainerSucceeds(t *testing.T) {
	onBench(t, corev1.PodSpec{Containers: []corev1.Container{runs("app", "sleep")}}, func(t *testing.T, b *bench) {
		b.up()
		b.fake.Inject(fake.Fault{Method: "StopContainer", Err: notFound()})
		if err := b.stop(t.Context(), 5*time.Second); err != nil {
			t.Error(err)
		}
	})
}

func TestTeardownWithoutContainersCallsNothing(t *testing.T) {
	onBench(t, corev1.PodSpec{Containers: []corev1.Container{runs("app", "sleep")}}, func(t *testing.T, b *bench) {
		if err := b.stop(t.Context(), 5*time.Second); err != nil || len(b.calls()) != 0 {
			t.Errorf("%v after %v", err, b.calls())
		}
	})
}

// A container that uses up its whole grace period does not delay another one.
func TestKillsAreIndependent(t *testing.T) {
	spec := corev1.PodSpec{Containers: []corev1.Container{runs("slow", "stubborn"), runs("quick", "sleep")}}
	onBench(t, spec, func(t *testing.T, b *bench) {
		b.up()
		b.probes = map[string]plan.Probes{
			b.newest("slow").ID: {Liveness: plan.Failure}, b.newest("quick").ID: {Liveness: plan.Failure},
		}
		begin := time.Now()
		b.sync()
		if got := b.newest("quick"); got.State != pod.StateRunning || got.RestartCount != 1 || time.Since(begin) != 0 {
			t.Errorf("quick is %s after %d restarts and %v", got.State, got.RestartCount, time.Since(begin))
		}
		b.tasks.wg.Wait()
		synctest.Wait()
	})
}

// If the runtime refuses a second stop beside the first, the first still completes.
func TestRefusedShorterStopKeepsTheFirst(t *testing.T) {
	onBench(t, corev1.PodSpec{Containers: []corev1.Container{runs("app", "stubborn")}}, func(t *testing.T, b *bench) {
		b.up()
		begin := time.Now()
		b.fake.Inject(fake.Fault{Method: "StopContainer", Err: errors.New("is being stopped"),
			Match: func(req any) bool { return req.(*runtimeapi.StopContainerRequest).Timeout < 10 }})
		result := make(chan error)
		go func() { result <- b.stop(t.Context(), 10*time.Second) }()
		time.Sleep(time.Second)
		none := time.Duration(0)
		b.stops <- pod.Stop{Grace: &none}
		if err := <-result; err != nil || time.Since(begin) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

// A container whose image changes while it runs is replaced although its pod never restarts containers. A container
// that had ended before is not.
func TestReplaceAfterImageChange(t *testing.T) {
	spec := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{runs("app", "sleep"), runs("once", "true")}}
	onBench(t, spec, func(t *testing.T, b *bench) {
		b.sync()
		first := b.newest("app").ID
		p := *b.pod
		p.Pod = b.pod.DeepCopy()
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].Image = "example.com/other:1"
		}
		b.pod = &p
		b.sync()
		if diff := cmp.Diff(map[string]bool{first: true}, b.replaced); diff != "" {
			t.Errorf("written down before the stop (-want +got):\n%s", diff)
		}
		if now := b.newest("app"); now.ID == first || now.RestartCount != 1 {
			t.Errorf("app was not replaced: %+v", now)
		}
		if diff := cmp.Diff(map[string]string{"app": "running", "once": "exited"}, b.states()); diff != "" {
			t.Error(diff)
		}
		if now := b.newest("once"); now.RestartCount != 0 {
			t.Errorf("once ran again: %+v", now)
		}
	})
}
