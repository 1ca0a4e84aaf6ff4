package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/cri/critest/fake"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
)

func TestStart(t *testing.T) {
	app := runs("app", "print", "hello", "then", "sleep")
	app.TerminationMessagePath = "/dev/termination-log"
	app.Env = []corev1.EnvVar{{Name: "IP",
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
	app.VolumeMounts = []corev1.VolumeMount{
		{Name: "data", MountPath: "/data"},
		{Name: "data", MountPath: "/part", SubPathExpr: "of/$(IP)", ReadOnly: true},
	}
	spec := corev1.PodSpec{
		InitContainers: []corev1.Container{runs("init", "true")},
		Containers:     []corev1.Container{app, runs("second", "sleep")},
	}
	onBench(t, spec, func(t *testing.T, b *bench) {
		b.sync()
		want := []string{"create init", "start init", "create app", "start app", "create second", "start second"}
		if diff := cmp.Diff(want[:2], b.calls()[:2]); diff != "" || len(b.calls()) != len(want) {
			t.Errorf("calls %v", b.calls())
		}
		if diff := cmp.Diff(map[string]string{"init": "exited", "app": "running", "second": "running"},
			b.states()); diff != "" {
			t.Error(diff)
		}
		wantLifecycle := []string{"PreCreate init", "PreStart init container-2"}
		if diff := cmp.Diff(wantLifecycle, b.lifecycle.calls[:2]); diff != "" {
			t.Error(diff)
		}
		wantEvents := []string{"spec.initContainers{init} Normal Created: Container created",
			"spec.initContainers{init} Normal Started: Container started"}
		if diff := cmp.Diff(wantEvents, b.events()[:2]); diff != "" {
			t.Error(diff)
		}
		link := filepath.Join(b.dir, "containers", "web_default_app-"+b.newest("app").ID+".log")
		if to, err := os.Readlink(link); err != nil || to != filepath.Join(b.config.LogDirectory, "app", "0.log") {
			t.Errorf("log link to %q, %v", to, err)
		}
		if diff := cmp.Diff([]string{"app", "init", "second"}, b.links()); diff != "" {
			t.Errorf("log links: %s", diff)
		}
		checkConfig(t, b)
		if why, _, ok := b.Waiting(b.pod.UID, "app"); ok || b.Starting(b.pod.UID, "app") {
			t.Errorf("a started container waits: %s", why)
		}
	})
}

// checkConfig checks the configuration that the runtime received for the container app, except for the parts that
// package render makes.
func checkConfig(t *testing.T, b *bench) {
	t.Helper()
	for _, call := range b.fake.Calls("CreateContainer") {
		req := call.Request.(*runtimeapi.CreateContainerRequest)
		if req.Config.Metadata.Name != "app" {
			continue
		}
		if req.PodSandboxId != b.sandbox || req.SandboxConfig.GetMetadata().GetUid() != "6b1e" ||
			req.Config.LogPath != "app/0.log" {
			t.Errorf("created in %s with log %s", req.PodSandboxId, req.Config.LogPath)
		}
		if got := req.Config.Annotations["example.com/hook"]; got != "was here" {
			t.Error("what a lifecycle changed did not reach the runtime")
		}
		var mounts []string
		for _, m := range req.Config.Mounts {
			mounts = append(mounts, m.ContainerPath+" "+strings.TrimPrefix(m.HostPath, b.dir))
		}
		want := []string{"/data /data", "/part /data/app/1/of/127.0.0.1/true", "/etc/hosts /hosts",
			"/dev/termination-log /termination/app/0"}
		if diff := cmp.Diff(want, mounts); diff != "" {
			t.Error(diff)
		}
		return
	}
	t.Error("app was not created")
}

func TestFailures(t *testing.T) {
	postStart := runs("app", "sleep")
	postStart.Lifecycle = &corev1.Lifecycle{PostStart: execHandler("print", "secret", "then", "exit", "3")}
	noVolume := runs("app", "sleep")
	noVolume.VolumeMounts = []corev1.VolumeMount{{Name: "gone", MountPath: "/gone"}}
	badSubPath := runs("app", "sleep")
	badSubPath.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data", SubPath: "bad"}}
	cases := []struct {
		name      string
		container corev1.Container
		prepare   func(*bench)
		reason    string
		message   string
		events    []string
		calls     []string
		state     string // of the container afterwards, "" for none
	}{
		{name: "image", container: runs("app", "sleep"),
			prepare: func(b *bench) {
				b.images = func(context.Context, pod.Container) error {
					return reason.New(reason.ErrImagePull, "no route")
				}
			},
			reason: reason.ErrImagePull, message: "no route",
			events: []string{"Warning Failed: Error: ErrImagePull"}},
		{name: "volume", container: noVolume, reason: reason.CreateContainerConfigError,
			message: `cannot find volume "gone" to mount into container "app"`,
			events:  []string{`Warning Failed: Error: cannot find volume "gone" to mount into container "app"`}},
		{name: "subPath", container: badSubPath, reason: reason.CreateContainerConfigError,
			message: `bind subPath "bad": it is bad`,
			events:  []string{`Warning Failed: Error: bind subPath "bad": it is bad`}},
		{name: "PreCreate", container: runs("app", "sleep"), prepare: func(b *bench) {
			b.lifecycle.refuse = "PreCreate app"
		},
			reason: reason.PreCreateHookError, message: "no licence for container-2",
			events: []string{"Warning Failed: Internal PreCreateContainer hook failed: no licence for container-2"}},
		{name: "create", container: runs("app", "sleep"),
			prepare: func(b *bench) {
				b.fake.Inject(fake.Fault{Method: "CreateContainer", Err: errors.New("disk full")})
			},
			reason: reason.CreateContainerError, message: "CreateContainer: disk full",
			events: []string{"Warning Failed: Error: CreateContainer: disk full"}, calls: []string{"create app"}},
		{name: "no id", container: runs("app", "sleep"),
			prepare: func(b *bench) {
				b.fake.Inject(fake.Fault{Method: "CreateContainer", Err: nil, Answer: func(any) any {
					return &runtimeapi.CreateContainerResponse{}
				}})
			},
			reason:  reason.CreateContainerError,
			message: "CreateContainer: runtime at fake answered success without ContainerId",
			events: []string{
				"Warning Failed: Error: CreateContainer: runtime at fake answered success without ContainerId"},
			calls: []string{"create app"}, state: "created"},
		{name: "PreStart", container: runs("app", "sleep"), prepare: func(b *bench) {
			b.lifecycle.refuse = "PreStart app container-2"
		},
			reason: reason.PreStartHookError, message: "no licence for container-2",
			events: []string{"Warning Failed: Internal PreStartContainer hook failed: no licence for app"},
			calls:  []string{"create app", "remove app"}},
		{name: "start", container: corev1.Container{Name: "app", Command: []string{"/absent"}},
			reason:  reason.RunContainerError,
			message: `StartContainer: exec: "/absent": stat /absent: no such file or directory`,
			events: []string{"Normal Created: Container created",
				`Warning Failed: Error: StartContainer: exec: "/absent": stat /absent: no such file or directory`},
			calls: []string{"create app", "start app"}, state: "exited"},
		{name: "postStart", container: postStart, reason: reason.PostStartHookError,
			message: `Exec lifecycle hook ([/workload print secret then exit 3]) for Container "app" in Pod ` +
				`"default/web" failed - error: command exited with 3, message: "secret"`,
			events: []string{"Normal Created: Container created", "Normal Started: Container started",
				"Normal Killing: FailedPostStartHook", "Warning FailedPostStartHook: PostStartHook failed"},
			calls: []string{"create app", "start app", "exec app [/workload print secret then exit 3]", "stop app 30"},
			state: "exited"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			onBench(t, corev1.PodSpec{Containers: []corev1.Container{c.container}}, func(t *testing.T, b *bench) {
				if c.prepare != nil {
					c.prepare(b)
				}
				b.pass()
				time.Sleep(time.Second) // in the bubble's time: the agent asks for the sandbox for 300 ms
				if err := b.tasks.err("app"); reason.Of(err) != c.reason {
					t.Errorf("task ended with %v, want %s", err, c.reason)
				}
				if why, message, ok := b.Waiting(b.pod.UID, "app"); !ok || why != c.reason || message != c.message {
					t.Errorf("waits for %s: %q\nwant       %s: %q", why, message, c.reason, c.message)
				}
				for i := range c.events {
					c.events[i] = "spec.containers{app} " + c.events[i]
				}
				if diff := cmp.Diff(c.events, b.events()); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff(c.calls, b.calls()); diff != "" {
					t.Error(diff)
				}
				if got := b.states()["app"]; got != c.state {
					t.Errorf("left %q, want %q", got, c.state)
				}
				b.Forget(b.pod.UID)
				if _, _, ok := b.Waiting(b.pod.UID, "app"); ok {
					t.Error("a forgotten pod still waits")
				}
			})
		})
	}
}

func TestFailureIsForgottenBySuccess(t *testing.T) {
	onBench(t, corev1.PodSpec{Containers: []corev1.Container{runs("app", "sleep")}}, func(t *testing.T, b *bench) {
		b.fake.Inject(fake.Fault{Method: "CreateContainer", Times: 1, Err: errors.New("disk full")})
		b.sync()
		b.tasks.forgive()
		b.sync()
		if why, _, ok := b.Waiting(b.pod.UID, "app"); ok || b.states()["app"] != "running" {
			t.Errorf("waits for %s, is %s", why, b.states()["app"])
		}
	})
}

// slowImages holds back the images of some containers until release is called.
func slowImages(b *bench, names ...string) (release func(name string)) {
	held := map[string]chan struct{}{}
	for _, name := range names {
		held[name] = make(chan struct{})
	}
	b.images = func(ctx context.Context, c pod.Container) error {
		select {
		case <-held[c.Name]:
		case <-ctx.Done():
			return ctx.Err()
		}
		return nil
	}
	for _, c := range pod.Containers(b.pod.Pod) {
		if !slices.Contains(names, c.Name) {
			held[c.Name] = make(chan struct{})
			close(held[c.Name])
		}
	}
	return func(name string) {
		close(held[name])
		synctest.Wait()
	}
}

// creates returns the containers in the order of their creation.
func (b *bench) creates() []string {
	var names []string
	for _, call := range b.calls() {
		if name, ok := strings.CutPrefix(call, "create "); ok {
			names = append(names, name)
		}
	}
	return names
}

func TestCreationIsInOrder(t *testing.T) {
	spec := corev1.PodSpec{Containers: []corev1.Container{runs("a", "sleep"), runs("b", "sleep"), runs("c", "sleep")}}
	onBench(t, spec, func(t *testing.T, b *bench) {
		release := slowImages(b, "a", "b")
		b.sync()
		release("b")
		if got := b.creates(); got != nil {
			t.Errorf("created %v before a", got)
		}
		// Another pass, which any event can cause, starts nothing twice.
		b.sync()
		release("a")
		if diff := cmp.Diff([]string{"a", "b", "c"}, b.creates()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCreationWaitsForCreationOnly(t *testing.T) {
	spec := corev1.PodSpec{Containers: []corev1.Container{runs("a", "sleep"), runs("b", "sleep")}}
	onBench(t, spec, func(t *testing.T, b *bench) {
		b.fake.Inject(fake.Fault{Method: "StartContainer", Delay: time.Minute})
		b.pass() // no time passes: no start has ended
		if diff := cmp.Diff([]string{"a", "b"}, b.creates()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPostStartHoldsBackTheNext(t *testing.T) {
	a := runs("a", "sleep")
	a.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}
	onBench(t, corev1.PodSpec{Containers: []corev1.Container{a, runs("b", "sleep")}}, func(t *testing.T, b *bench) {
		b.sync()
		if diff := cmp.Diff([]string{"a"}, b.creates()); diff != "" || b.states()["a"] != "running" {
			t.Errorf("while postStart runs: %s", diff)
		}
		if !b.Starting(b.pod.UID, "a") || b.Starting(b.pod.UID, "b") {
			t.Error("the start with a handler is not shown as incomplete")
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a", "b"}, b.creates()); diff != "" || b.Starting(b.pod.UID, "a") {
			t.Errorf("after postStart: %s", diff)
		}
	})
}

func TestFailureLetsTheNextGo(t *testing.T) {
	spec := corev1.PodSpec{Containers: []corev1.Container{runs("a", "sleep"), runs("b", "sleep")}}
	onBench(t, spec, func(t *testing.T, b *bench) {
		b.images = func(_ context.Context, c pod.Container) error {
			if c.Name == "a" {
				return reason.New(reason.ErrImagePull, "no route")
			}
			return nil
		}
		b.sync()
		if diff := cmp.Diff([]string{"b"}, b.creates()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRestartDoesNotWaitForOthers(t *testing.T) {
	spec := corev1.PodSpec{Containers: []corev1.Container{runs("a", "sleep"), runs("b", "sleep")}}
	onBench(t, spec, func(t *testing.T, b *bench) {
		b.sync()
		release := slowImages(b, "a")
		b.fake.Exit(b.newest("a").ID, 1, "")
		b.fake.Exit(b.newest("b").ID, 1, "")
		b.refresh()
		b.sync()
		if got := b.newest("b"); got.State != pod.StateRunning || got.RestartCount != 1 {
			t.Errorf("b is %s after %d restarts while a waits for its image", got.State, got.RestartCount)
		}
		release("a")
	})
}

// A plan that was made before an effect was observed is not carried out.
func TestStalePlanStartsNothingTwice(t *testing.T) {
	onBench(t, corev1.PodSpec{Containers: []corev1.Container{runs("app", "sleep")}}, func(t *testing.T, b *bench) {
		stale := b.run()
		b.sync()
		for range 2 {
			if err := b.setup(b.tasks.ctx, stale, b.tasks); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		if diff := cmp.Diff([]string{"create app", "start app"}, b.calls()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestUnstartedContainerIsMadeAnew(t *testing.T) {
	onBench(t, corev1.PodSpec{Containers: []corev1.Container{runs("app", "sleep")}}, func(t *testing.T, b *bench) {
		b.sync()
		b.fake.Exit(b.newest("app").ID, 1, "")
		b.fake.Inject(fake.Fault{Method: "StartContainer", Times: 1, Hang: true})
		b.refresh()
		b.pass() // its restart is created, and the agent killed
		restarted := b.newest("app")
		if restarted.State != pod.StateCreated || restarted.RestartCount != 1 {
			t.Fatalf("%+v", restarted)
		}
		b.tasks.interrupt()
		b.tasks.forgive()
		b.Containers = New(b.opts)
		b.sync()
		if got := b.newest("app"); got.State != pod.StateRunning || got.RestartCount != 1 || got.ID == restarted.ID {
			t.Errorf("%+v", got)
		}
		want := []string{"create app", "start app", "create app", "start app", "remove app", "create app", "start app"}
		if diff := cmp.Diff(want, b.calls()); diff != "" {
			t.Error(diff)
		}
	})
}

// An agent that is killed after the removal of a container that was never started leaves nothing that counts as an
// instance of it. A runc that was killed with the agent leaves an error in the log.
func TestLogOfUnstartedContainerIsRemoved(t *testing.T) {
	for _, content := range []string{"", "2026-12-01T05:57:19Z stderr F runc init failed\n"} {
		onBench(t, corev1.PodSpec{Containers: []corev1.Container{runs("app", "sleep")}}, func(t *testing.T, b *bench) {
			b.fake.Inject(fake.Fault{Method: "StartContainer", Times: 1, Hang: true})
			b.refresh()
			b.pass() // the container is created, and the agent killed
			b.tasks.interrupt()
			b.tasks.forgive()
			log := b.newest("app").LogPath
			err := os.MkdirAll(filepath.Dir(log), 0o755)
			if err == nil {
				err = os.WriteFile(log, []byte(content), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			b.fake.Inject(fake.Fault{Method: "CreateContainer", Times: 1, Err: errors.New("killed")})
			b.Containers = New(b.opts)
			b.refresh()
			b.pass() // the container is removed, and the next agent killed
			b.tasks.interrupt()
			b.tasks.forgive()
			b.Containers = New(b.opts)
			b.sync()
			if got := b.newest("app"); got.RestartCount != 0 {
				t.Errorf("restart count %d, want 0", got.RestartCount)
			}
		})
	}
}

func TestRestartCountFromLogs(t *testing.T) {
	onBench(t, corev1.PodSpec{Containers: []corev1.Container{runs("app", "sleep")}}, func(t *testing.T, b *bench) {
		dir := filepath.Join(b.config.LogDirectory, "app")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"0.log", "4.log", "2.log.20260301-120000.gz", "notes.txt"} {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		b.sync()
		if got := b.newest("app").RestartCount; got != 5 {
			t.Errorf("restart count %d", got)
		}
	})
}

func TestEphemeralJoinsItsTarget(t *testing.T) {
	spec := corev1.PodSpec{
		Containers: []corev1.Container{runs("app", "sleep")},
		EphemeralContainers: []corev1.EphemeralContainer{
			{TargetContainerName: "app",
				EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: fake.Image,
					Args: []string{"sleep"}}},
			{TargetContainerName: "gone",
				EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "lost", Image: fake.Image}},
		},
	}
	onBench(t, spec, func(t *testing.T, b *bench) {
		ephemeral := b.pod.Spec.EphemeralContainers
		b.pod.Spec.EphemeralContainers = nil
		b.sync()
		b.pod.Spec.EphemeralContainers = ephemeral
		b.sync()
		calls := b.fake.Calls("CreateContainer")
		options := calls[len(
			calls)-1].Request.(*runtimeapi.CreateContainerRequest).Config.Linux.SecurityContext.NamespaceOptions
		if options.Pid != runtimeapi.NamespaceMode_TARGET || options.TargetId != b.newest("app").ID {
			t.Errorf("PID namespace %v", options)
		}
		if why, message, _ := b.Waiting(b.pod.UID, "lost"); why != reason.CreateContainerConfigError ||
			message != "unable to find target container gone" {
			t.Errorf("%s: %s", why, message)
		}
	})
}

func TestRestartOfAll(t *testing.T) {
	source := runs("b", "exit", "42")
	source.RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action: corev1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn,
			Values: []int32{42}},
	}}
	onBench(t, corev1.PodSpec{Containers: []corev1.Container{runs("a", "sleep"), source}},
		func(t *testing.T, b *bench) {
			b.pass() // both start, b exits
			b.refresh()
			b.pass() // a is killed
			b.pass() // a is removed
			if diff := cmp.Diff(map[string]string{"b": "exited"}, b.states()); diff != "" {
				t.Errorf("what the new begin goes on from (-want +got):\n%s", diff)
			}
			b.pass()
			want := []string{"stop a 2", "remove a", "create a", "create b"}
			calls := slices.DeleteFunc(b.calls(), func(c string) bool { return strings.HasPrefix(c, "start ") })
			if !cmp.Equal(want, calls[len(calls)-len(want):]) {
				t.Errorf("calls but the starts %v", calls)
			}
		})
}

// Stopping a pod interrupts whatever its start waits for, at once and without reporting a failure.
func TestInterrupted(t *testing.T) {
	slow := runs("app", "sleep")
	slow.Lifecycle = &corev1.Lifecycle{PostStart: execHandler("sleep")}
	cases := map[string]struct {
		prepare func(*bench)
		calls   []string
	}{
		"image":     {func(b *bench) { slowImages(b, "app") }, nil},
		"PreCreate": {func(b *bench) { b.lifecycle.hang = "PreCreate app" }, nil},
		"PreStart":  {func(b *bench) { b.lifecycle.hang = "PreStart app container-2" }, []string{"create app"}},
		"postStart": {func(*bench) {}, []string{"create app", "start app", "exec app [/workload sleep]"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			onBench(t, corev1.PodSpec{Containers: []corev1.Container{slow, runs("next", "sleep")}},
				func(t *testing.T, b *bench) {
					c.prepare(b)
					b.pass()
					begin := time.Now()
					b.tasks.interrupt()
					if took := time.Since(begin); took != 0 {
						t.Errorf("took %v", took)
					}
					if diff := cmp.Diff(c.calls, b.calls()); diff != "" {
						t.Error(diff)
					}
					if why, _, ok := b.Waiting(b.pod.UID, "app"); ok {
						t.Errorf("shown as %s", why)
					}
					for _, e := range b.events() {
						if strings.Contains(e, "Warning") {
							t.Errorf("event %q", e)
						}
					}
				})
		})
	}
}

// A call that the runtime is executing is waited for, and its result is observed.
func TestCallUnderWayIsNotLost(t *testing.T) {
	for _, method := range []string{"CreateContainer", "StartContainer"} {
		for delay, want := range map[time.Duration]time.Duration{3 * time.Second: 3 * time.Second, time.Hour: settle} {
			t.Run(fmt.Sprintf("%s %v", method, delay), func(t *testing.T) {
				onBench(t, corev1.PodSpec{Containers: []corev1.Container{runs("app", "sleep")}},
					func(t *testing.T, b *bench) {
						b.fake.Inject(fake.Fault{Method: method, Delay: delay})
						b.pass()
						begin := time.Now()
						b.tasks.interrupt()
						if took := time.Since(begin); took != want {
							t.Errorf("took %v, want %v", took, want)
						}
						seen, ok := b.pleg.Observed(b.pod.UID).Container("app")
						if delay < settle && !ok {
							t.Error("its result is not observed")
						}
						if method == "StartContainer" && delay < settle && seen.State != pod.StateRunning {
							t.Errorf("observed as %s", seen.State)
						}
					})
			})
		}
	}
}

// A container whose sandbox ended under its start leaves nothing that a restart is counted from, unless it may have
// run.
func TestSandboxEndsUnderAStart(t *testing.T) {
	for err, left := range map[error]string{
		errors.New("namespace path: lstat /proc/7/ns/ipc"): "",
		status.Error(codes.Unavailable, "closing"):         "created",
	} {
		onBench(t, corev1.PodSpec{Containers: []corev1.Container{runs("app", "sleep")}}, func(t *testing.T, b *bench) {
			log := filepath.Join(b.config.LogDirectory, "app", "0.log")
			b.fake.Inject(fake.Fault{Method: "StartContainer", Err: err, Match: func(any) bool {
				return os.WriteFile(log, []byte("runc failed"), 0o600) == nil
			}})
			b.fake.Inject(fake.Fault{Method: "PodSandboxStatus", Answer: func(resp any) any {
				resp.(*runtimeapi.PodSandboxStatusResponse).Status.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
				return resp
			}})
			b.pass()
			_, missing := os.Stat(log)
			if got := b.states()["app"]; got != left || (missing != nil) != (left == "") {
				t.Errorf("%v: left %q, want %q; log: %v", err, got, left, missing)
			}
			if reason.Of(b.tasks.err("app")) != reason.RunContainerError {
				t.Errorf("%v: task ended with %v", err, b.tasks.err("app"))
			}
		})
	}
}

// While the state cannot be read, nothing is started a second time.
func TestNothingIsDoubledWithoutObservation(t *testing.T) {
	onBench(t, corev1.PodSpec{Containers: []corev1.Container{runs("app", "sleep")}}, func(t *testing.T, b *bench) {
		remove := b.fake.Inject(fake.Fault{Method: "ListContainers", Err: errors.New("busy")})
		b.pass()
		if b.tasks.err("app") == nil {
			t.Error("the task hides that the state was not read")
		}
		b.tasks.forgive()
		b.pass()
		remove()
		b.refresh()
		b.sync()
		if diff := cmp.Diff([]string{"create app", "start app"}, b.calls()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestNoSandboxNoStart(t *testing.T) {
	onBench(t, corev1.PodSpec{Containers: []corev1.Container{runs("app", "sleep")}}, func(t *testing.T, b *bench) {
		r := b.run()
		b.sandbox = ""
		if err := b.setup(b.tasks.ctx, r, b.tasks); err != nil || b.tasks.count() != 0 {
			t.Errorf("%v, %d tasks", err, b.tasks.count())
		}
		if len(r.Plan.Start) != 1 || r.Plan.Sandbox.Op != plan.SandboxKeep {
			t.Errorf("plan %+v", r.Plan)
		}
	})
}
