package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

var t0 = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

// want is a plan in short texts.
type want struct {
	Sandbox Sandbox
	Kill    []string // name: reason
	Start   []string // name #restart
	Waiting []string // name: reason
	Remove  []string
	Done    string
	Again   time.Time
}

func words(p Plan) want {
	w := want{Sandbox: p.Sandbox, Remove: p.Remove, Again: p.LookAgain}
	for _, k := range p.Kill {
		w.Kill = append(w.Kill, k.ID+": "+k.Why)
	}
	for _, s := range p.Start {
		w.Start = append(w.Start, s.Name+" #"+itoa(s.RestartCount)+" after "+s.Backoff.String())
	}
	for _, x := range p.Waiting {
		w.Waiting = append(w.Waiting, x.Name+": "+x.Reason)
	}
	switch {
	case p.DeadlineExceeded:
		w.Done = "deadline"
	case p.Done && p.Failed:
		w.Done = "failed"
	case p.Done:
		w.Done = "succeeded"
	case p.RestartingAll:
		w.Done = "restarting all"
	}
	return w
}

func itoa(i int) string { return string(rune('0' + i)) }

type specOption func(*corev1.Pod)

func spec(policy corev1.RestartPolicy, opts ...specOption) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}}
	p.Spec.RestartPolicy = policy
	for _, o := range opts {
		o(p)
	}
	return p
}

func apps(names ...string) specOption {
	return func(p *corev1.Pod) {
		for _, n := range names {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: n})
		}
	}
}

func inits(names ...string) specOption {
	return func(p *corev1.Pod) {
		for _, n := range names {
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: n})
		}
	}
}

func sidecar(name string, startup bool) specOption {
	return func(p *corev1.Pod) {
		always := corev1.ContainerRestartPolicyAlways
		c := corev1.Container{Name: name, RestartPolicy: &always}
		if startup {
			c.StartupProbe = &corev1.Probe{}
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}

func ephemeral(name string) specOption {
	return func(p *corev1.Pod) {
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name}})
	}
}

func rule(action corev1.ContainerRestartRuleAction, op corev1.ContainerRestartRuleOnExitCodesOperator,
	codes ...int32) specOption {
	return func(p *corev1.Pod) {
		c := &p.Spec.Containers[len(p.Spec.Containers)-1]
		c.RestartPolicyRules = append(c.RestartPolicyRules, corev1.ContainerRestartRule{
			Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}})
	}
}

func own(policy corev1.ContainerRestartPolicy) specOption {
	return func(p *corev1.Pod) { p.Spec.Containers[len(p.Spec.Containers)-1].RestartPolicy = &policy }
}

// box returns a ready sandbox s<n> with an address.
func box(n int) pod.SandboxStatus {
	return pod.SandboxStatus{ID: "s" + itoa(n), Attempt: uint32(n), Ready: true, CreatedAt: at(n),
		IPs: []string{"10.0.0.1"}}
}

func dead(s pod.SandboxStatus) pod.SandboxStatus { s.Ready = false; return s }

func running(name string) pod.ContainerStatus {
	return pod.ContainerStatus{ID: name + "0", Name: name, SandboxID: "s0", State: pod.StateRunning, StartedAt: at(1)}
}

// exited returns a container that ended at second 10 after one second.
func exited(name string, code int32) pod.ContainerStatus {
	return pod.ContainerStatus{ID: name + "0", Name: name, SandboxID: "s0", State: pod.StateExited,
		ExitCode: code, StartedAt: at(9), FinishedAt: at(10)}
}

func again(s pod.ContainerStatus, count int, backoff time.Duration) pod.ContainerStatus {
	s.RestartCount, s.Backoff = count, backoff
	return s
}

func saw(boxes []pod.SandboxStatus, containers ...pod.ContainerStatus) *pod.Observed {
	return &pod.Observed{UID: "u", Sandboxes: boxes, Containers: containers}
}

func one(containers ...pod.ContainerStatus) *pod.Observed {
	return saw([]pod.SandboxStatus{box(0)}, containers...)
}

var keep = Sandbox{Op: SandboxKeep, ID: "s0"}

func check(t *testing.T, in Input, w want) {
	t.Helper()
	if in.Now.IsZero() {
		in.Now = at(10)
	}
	if diff := cmp.Diff(w, words(Compute(in))); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestSandbox(t *testing.T) {
	always := spec(corev1.RestartPolicyAlways, apps("app"))
	host := spec(corev1.RestartPolicyAlways, apps("app"), func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	start := []string{"app #0 after 0s"}
	replaced := func(why string, stop ...string) Sandbox {
		return Sandbox{Op: SandboxCreate, Attempt: 1, Stop: stop, Why: why}
	}
	noIP := box(0)
	noIP.IPs = nil
	gone := "app0: Pod sandbox changed, it will be killed and re-created."
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		seen *pod.Observed
		want want
	}{
		"unknown to the runtime": {always, nil, want{Sandbox: Sandbox{Op: SandboxCreate}, Start: start}},
		"kept":                   {always, one(), want{Sandbox: keep, Start: start}},
		"not ready": {always, saw([]pod.SandboxStatus{dead(box(0))}),
			want{Sandbox: replaced("the sandbox is not ready", "s0"), Start: start}},
		"two ready": {always, saw([]pod.SandboxStatus{box(1), box(0)}),
			want{Sandbox: Sandbox{Op: SandboxCreate, Attempt: 2, Stop: []string{"s1", "s0"},
				Why: "2 sandboxes are ready, one is wanted"}, Start: start}},
		"network mode changed": {host, one(), want{Sandbox: replaced("the network mode changed", "s0"), Start: start}},
		"no address": {always, saw([]pod.SandboxStatus{noIP}),
			want{Sandbox: replaced("the sandbox has no address", "s0"), Start: start}},
		"drained first": {always, saw([]pod.SandboxStatus{dead(box(0))}, running("app")),
			want{Sandbox: Sandbox{Op: SandboxDrain, Attempt: 1, Stop: []string{"s0"}, Why: "the sandbox is not ready"},
				Kill: []string{gone}}},
		"gone with its containers, restarted without backoff": {always,
			saw([]pod.SandboxStatus{box(1), dead(box(0))}, again(exited("app", 137), 3, 40*time.Second)),
			want{Sandbox: Sandbox{Op: SandboxKeep, ID: "s1", Attempt: 1}, Start: []string{"app #4 after 0s"}}},
		"gone, and nothing is to run again": {spec(corev1.RestartPolicyNever, apps("app")),
			saw([]pod.SandboxStatus{dead(box(0))}, exited("app", 0)),
			want{Done: "succeeded"}},
		"gone, only the failed one runs again": {spec(corev1.RestartPolicyOnFailure, apps("a", "b")),
			saw([]pod.SandboxStatus{box(1), dead(box(0))}, exited("a", 0), exited("b", 1)),
			want{Sandbox: Sandbox{Op: SandboxKeep, ID: "s1", Attempt: 1}, Start: []string{"b #1 after 0s"}}},
	} {
		t.Run(name, func(t *testing.T) { check(t, Input{Pod: c.pod, Observed: c.seen}, c.want) })
	}
}

func TestRestart(t *testing.T) {
	const (
		always    = corev1.RestartPolicyAlways
		onFailure = corev1.RestartPolicyOnFailure
		never     = corev1.RestartPolicyNever
		restart   = corev1.ContainerRestartRuleActionRestart
		in        = corev1.ContainerRestartRuleOnExitCodesOpIn
		notIn     = corev1.ContainerRestartRuleOnExitCodesOpNotIn
	)
	crash := []string{"app: CrashLoopBackOff"}
	changed := map[string]string{"app": "new"}
	old := func(s pod.ContainerStatus) pod.ContainerStatus { s.Hash = "old"; return s }
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		seen *pod.Observed
		in   Input
		want want
	}{
		"first crash at once": {pod: spec(always, apps("app")), seen: one(exited("app", 1)),
			want: want{Start: []string{"app #1 after 0s"}}},
		"second after 10 s": {pod: spec(always, apps("app")), seen: one(again(exited("app", 1), 1, 0)),
			want: want{Waiting: crash, Again: at(20)}},
		"and then it starts": {pod: spec(always, apps("app")), seen: one(again(exited("app", 1), 1, 0)),
			in: Input{Now: at(20)}, want: want{Start: []string{"app #2 after 10s"}}},
		"third after 20 s": {pod: spec(always, apps("app")), seen: one(again(exited("app", 1), 2, 10*time.Second)),
			want: want{Waiting: crash, Again: at(30)}},
		"the clock set back": {pod: spec(always, apps("app")), seen: one(again(exited("app", 1), 1, 0)),
			in: Input{Now: at(-7000)}, want: want{Start: []string{"app #2 after 10s"}}},
		"300 s at the most": {pod: spec(always, apps("app")), seen: one(again(exited("app", 1), 9, 300*time.Second)),
			want: want{Waiting: crash, Again: at(310)}},
		"the node's maximum": {pod: spec(always, apps("app")), seen: one(again(exited("app", 1), 9, 4*time.Second)),
			in: Input{MaxBackoff: 5 * time.Second}, want: want{Waiting: crash, Again: at(15)}},
		"a maximum under 10 s": {pod: spec(always, apps("app")), seen: one(again(exited("app", 1), 1, 0)),
			in: Input{MaxBackoff: time.Second}, want: want{Waiting: crash, Again: at(11)}},
		"reset after 10 min": {pod: spec(always, apps("app")), seen: one(func() pod.ContainerStatus {
			s := again(exited("app", 1), 5, 300*time.Second)
			s.StartedAt = at(-590)
			return s
		}()), want: want{Start: []string{"app #6 after 0s"}}},
		"success restarts too": {pod: spec(always, apps("app")), seen: one(exited("app", 0)),
			want: want{Start: []string{"app #1 after 0s"}}},
		"OnFailure, failed": {pod: spec(onFailure, apps("app")), seen: one(exited("app", 1)),
			want: want{Start: []string{"app #1 after 0s"}}},
		"OnFailure, done": {pod: spec(onFailure, apps("app")), seen: one(exited("app", 0)),
			want: want{Done: "succeeded"}},
		"Never, one still runs": {pod: spec(never, apps("a", "b")), seen: one(exited("a", 1), running("b")),
			want: want{}},
		"Never, failed": {pod: spec(never, apps("a", "b")), seen: one(exited("a", 1), exited("b", 0)),
			want: want{Done: "failed"}},
		"own policy wins": {pod: spec(never, apps("app"), own(corev1.ContainerRestartPolicyAlways)),
			seen: one(exited("app", 0)), want: want{Start: []string{"app #1 after 0s"}}},
		"rule In": {pod: spec(never, apps("app"), rule(restart, in, 42)), seen: one(exited("app", 42)),
			want: want{Start: []string{"app #1 after 0s"}}},
		"rule In, other code": {pod: spec(never, apps("app"), rule(restart, in, 42)), seen: one(exited("app", 1)),
			want: want{Done: "failed"}},
		"rule NotIn": {pod: spec(never, apps("app"), rule(restart, notIn, 42)), seen: one(exited("app", 1)),
			want: want{Start: []string{"app #1 after 0s"}}},
		"changed image, without the delay": {pod: spec(onFailure, apps("app")),
			seen: one(old(again(exited("app", 1), 4, 300*time.Second))), in: Input{Hash: changed},
			want: want{Start: []string{"app #5 after 0s"}}},
		"changed image after its end, Never": {pod: spec(never, apps("app")), seen: one(old(exited("app", 1))),
			in: Input{Hash: changed}, want: want{Done: "failed"}},
		"changed image after its end, Never, beside another": {pod: spec(never, apps("app", "b")),
			seen: one(old(exited("app", 1)), running("b")), in: Input{Hash: changed}, want: want{}},
		"changed image after its end, OnFailure": {pod: spec(onFailure, apps("app")), seen: one(old(exited("app", 0))),
			in: Input{Hash: changed}, want: want{Done: "succeeded"}},
		"stopped for a changed image, Never": {pod: spec(never, apps("app")), seen: one(old(exited("app", 0))),
			in:   Input{Hash: changed, Restart: map[string]bool{"app0": true}},
			want: want{Start: []string{"app #1 after 0s"}}},
		"changed image of a completed init container": {pod: spec(never, inits("app", "i2"), apps("b")),
			seen: one(old(exited("app", 0)), running("i2")), in: Input{Hash: changed},
			want: want{Waiting: []string{"b: PodInitializing"}}},
		"changed image of a failed init container, Never": {pod: spec(never, inits("app"), apps("b")),
			seen: one(old(exited("app", 1))), in: Input{Hash: changed}, want: want{Done: "failed"}},
		"changed image, running": {pod: spec(always, apps("app")),
			seen: one(func() pod.ContainerStatus { s := running("app"); s.Hash = "old"; return s }()),
			in:   Input{Hash: map[string]string{"app": "new"}},
			want: want{Kill: []string{"app0: Container app definition changed, will be restarted"}}},
		"liveness failed": {pod: spec(always, apps("app")), seen: one(running("app")),
			in:   Input{Probes: map[string]Probes{"app0": {Liveness: Failure}}},
			want: want{Kill: []string{"app0: Container app failed liveness probe, will be restarted"}}},
		"liveness failed, it does not restart": {pod: spec(never, apps("app")), seen: one(running("app")),
			in:   Input{Probes: map[string]Probes{"app0": {Liveness: Failure}}},
			want: want{Kill: []string{"app0: Container app failed liveness probe"}}},
		"liveness failed, its own policy restarts it": {
			pod:  spec(never, apps("app"), own(corev1.ContainerRestartPolicyOnFailure)),
			seen: one(running("app")), in: Input{Probes: map[string]Probes{"app0": {Liveness: Failure}}},
			want: want{Kill: []string{"app0: Container app failed liveness probe, will be restarted"}}},
		"startup failed": {pod: spec(always, apps("app")), seen: one(running("app")),
			in:   Input{Probes: map[string]Probes{"app0": {Startup: Failure}}},
			want: want{Kill: []string{"app0: Container app failed startup probe, will be restarted"}}},
		"created, never started": {pod: spec(always, apps("app")), seen: one(func() pod.ContainerStatus {
			s := again(running("app"), 2, 10*time.Second)
			s.State = pod.StateCreated
			return s
		}()), want: want{Remove: []string{"app0"}, Start: []string{"app #2 after 10s"}}},
		"one backs off, one starts": {pod: spec(always, apps("a", "b")), seen: one(again(exited("a", 1), 1, 0)),
			want: want{Waiting: []string{"a: CrashLoopBackOff"}, Start: []string{"b #0 after 0s"}, Again: at(20)}},
		"deadline to come": {pod: spec(always, apps("app"), func(p *corev1.Pod) {
			p.Spec.ActiveDeadlineSeconds = new(int64(30))
		}), seen: one(running("app")), in: Input{Started: at(0)}, want: want{Again: at(30)}},
		"deadline over": {pod: spec(always, apps("app"), func(p *corev1.Pod) {
			p.Spec.ActiveDeadlineSeconds = new(int64(30))
		}), seen: one(running("app")), in: Input{Started: at(0), Now: at(30)}, want: want{Done: "deadline"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := c.in
			in.Pod, in.Observed = c.pod, c.seen
			if c.want.Done == "" {
				c.want.Sandbox = keep
			}
			check(t, in, c.want)
		})
	}
}

func TestInit(t *testing.T) {
	two := spec(corev1.RestartPolicyAlways, inits("i1", "i2"), apps("app"))
	never := spec(corev1.RestartPolicyNever, inits("i1"), apps("app"))
	side := spec(corev1.RestartPolicyNever, sidecar("side", false), inits("i1"), apps("app"))
	probed := spec(corev1.RestartPolicyNever, sidecar("side", true), apps("app"))
	waiting := func(names ...string) (w []string) {
		for _, n := range names {
			w = append(w, n+": PodInitializing")
		}
		return w
	}
	old := exited("i1", 0)
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		seen *pod.Observed
		in   Input
		want want
	}{
		"the first": {pod: two, seen: one(),
			want: want{Start: []string{"i1 #0 after 0s"}, Waiting: waiting("i2", "app")}},
		"the first runs": {pod: two, seen: one(running("i1")), want: want{Waiting: waiting("i2", "app")}},
		"the second": {pod: two, seen: one(exited("i1", 0)),
			want: want{Start: []string{"i2 #0 after 0s"}, Waiting: waiting("app")}},
		"all done": {pod: two, seen: one(exited("i2", 0), exited("i1", 0)),
			want: want{Start: []string{"app #0 after 0s"}}},
		"done and collected": {pod: two, seen: one(running("app")), want: want{}},
		"failed, tried again": {pod: two, seen: one(exited("i1", 1)),
			want: want{Start: []string{"i1 #1 after 0s"}, Waiting: waiting("i2", "app")}},
		"failed twice, backs off": {pod: two, seen: one(again(exited("i1", 1), 1, 0)),
			want: want{Waiting: append([]string{"i1: CrashLoopBackOff"}, waiting("i2", "app")...), Again: at(20)}},
		"failed with Never": {pod: never, seen: one(exited("i1", 1)), want: want{Done: "failed"}},
		"run again in a new sandbox": {pod: two,
			seen: saw([]pod.SandboxStatus{box(1), dead(box(0))}, old, exited("i2", 0), exited("app", 137)),
			want: want{Sandbox: Sandbox{Op: SandboxKeep, ID: "s1", Attempt: 1}, Start: []string{"i1 #1 after 0s"},
				Waiting: waiting("i2", "app")}},
		"begin with the first when the sandbox has gone": {pod: two,
			seen: saw([]pod.SandboxStatus{dead(box(0))}, exited("app", 137), exited("i2", 0), old), want: want{
				Sandbox: Sandbox{Op: SandboxCreate, Attempt: 1, Stop: []string{"s0"}, Why: "the sandbox is not ready"},
				Start:   []string{"i1 #1 after 0s"}, Waiting: waiting("i2", "app")}},
		"sidecar first": {pod: side, seen: one(),
			want: want{Start: []string{"side #0 after 0s"}, Waiting: waiting("i1", "app")}},
		"sidecar runs, init next": {pod: side, seen: one(running("side")),
			want: want{Start: []string{"i1 #0 after 0s"}, Waiting: waiting("app")}},
		"sidecar not through startup": {pod: probed, seen: one(running("side")),
			want: want{Waiting: waiting("app")}},
		"sidecar through startup": {pod: probed, seen: one(running("side")),
			in:   Input{Probes: map[string]Probes{"side0": {Startup: Success}}},
			want: want{Start: []string{"app #0 after 0s"}}},
		"sidecar restarts any time": {pod: side, seen: one(exited("side", 0), exited("i1", 0), running("app")),
			want: want{Start: []string{"side #1 after 0s"}}},
		"sidecar does not hold back the end": {pod: side, seen: one(running("side"), exited("i1", 0), exited("app", 0)),
			want: want{Done: "succeeded"}},
		"ephemeral before init": {pod: spec(corev1.RestartPolicyAlways, inits("i1"), apps("app"), ephemeral("dbg")),
			seen: one(running("i1")), want: want{Start: []string{"dbg #0 after 0s"}, Waiting: waiting("app")}},
		"ephemeral only once": {pod: spec(corev1.RestartPolicyAlways, apps("app"), ephemeral("dbg")),
			seen: one(running("app"), exited("dbg", 1)), want: want{}},
	} {
		t.Run(name, func(t *testing.T) {
			in := c.in
			in.Pod, in.Observed = c.pod, c.seen
			if c.want.Done == "" && c.want.Sandbox.Op == SandboxNone {
				c.want.Sandbox = keep
			}
			check(t, in, c.want)
		})
	}
}

// A restart of all containers is derived from the dead container that triggered it, in all its stages: kill, remove,
// wait, start.
func TestRestartAllContainers(t *testing.T) {
	p := spec(corev1.RestartPolicyNever, inits("i1"), apps("a", "b"),
		rule(corev1.ContainerRestartRuleActionRestartAllContainers, corev1.ContainerRestartRuleOnExitCodesOpIn, 42),
		ephemeral("dbg"))
	source := again(exited("b", 42), 1, 0) // ended at second 10
	anew := func(s pod.ContainerStatus) pod.ContainerStatus { s.ID, s.CreatedAt = s.Name+"1", at(21); return s }
	const backoff = "b: CrashLoopBackOff"
	for name, c := range map[string]struct {
		now  int
		seen []pod.ContainerStatus
		want want
	}{
		"what runs is killed": {10, []pod.ContainerStatus{source, running("a"), running("dbg"), exited("i1", 0)},
			want{Done: "restarting all",
				Kill: []string{"a0: Container b asked for a restart of all containers",
					"dbg0: Container b asked for a restart of all containers"}}},
		"what is dead is removed, but for the ephemeral container that has run": {10,
			[]pod.ContainerStatus{source, exited("a", 137), exited("dbg", 137), exited("i1", 0)},
			want{Done: "restarting all", Remove: []string{"a0", "i10"}}},
		"the crash delay": {12, []pod.ContainerStatus{source, exited("dbg", 137)},
			want{Waiting: []string{backoff}, Again: at(20)}},
		"the init container": {20, []pod.ContainerStatus{source, exited("dbg", 137)},
			want{Start: []string{"i1 #0 after 0s"}, Waiting: []string{"a: PodInitializing", "b: PodInitializing"}}},
		"an app that came up behind the old init container is old": {12,
			[]pod.ContainerStatus{anew(running("a")), source, exited("i1", 0), exited("dbg", 137)},
			want{Done: "restarting all", Kill: []string{"a1: Container b asked for a restart of all containers"}}},
		"the new init container runs": {22, []pod.ContainerStatus{anew(running("i1")), source, exited("dbg", 137)},
			want{Waiting: []string{"a: PodInitializing", "b: PodInitializing"}}},
		"the new init container fails": {22,
			[]pod.ContainerStatus{anew(exited("i1", 1)), source, exited("dbg", 137)}, want{Done: "failed"}},
		"the new init container is done": {22,
			[]pod.ContainerStatus{anew(exited("i1", 0)), source, exited("dbg", 137)},
			want{Start: []string{"a #0 after 0s", "b #2 after 10s"}}},
		"another app is up before it": {22,
			[]pod.ContainerStatus{anew(running("a")), anew(exited("i1", 0)), source, exited("dbg", 137)},
			want{Start: []string{"b #2 after 10s"}}},
		"all are up, the old one is left": {22,
			[]pod.ContainerStatus{anew(running("b")), anew(running("a")), anew(exited("i1", 0)), source,
				exited("dbg", 137)}, want{}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Sandbox = keep
			if c.want.Done == "failed" {
				c.want.Sandbox = Sandbox{}
			}
			check(t, Input{Pod: p, Observed: one(c.seen...), Now: at(c.now)}, c.want)
		})
	}
}

// An ended container stays ended after its removal. A container that was running when it was removed has failed.
func TestLost(t *testing.T) {
	status := func(name string, count int32, code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, RestartCount: count, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, ContainerID: "containerd://" + name + "0",
				FinishedAt: metav1.NewTime(at(10))}}}
	}
	ran := func(name string, count int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, RestartCount: count, ContainerID: "containerd://" + name + "0",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(at(1))}}}
	}
	gone := func(name string, count int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, RestartCount: count,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137,
				Reason: lostReason}}}
	}
	reported := func(phase corev1.PodPhase, all ...corev1.ContainerStatus) corev1.PodStatus {
		return corev1.PodStatus{Phase: phase, ContainerStatuses: all}
	}
	never := spec(corev1.RestartPolicyNever, inits("i1"), apps("a", "b"))
	changed := map[string]string{"a": "new", "b": "new"}
	for name, c := range map[string]struct {
		in   Input
		want want
	}{
		"of a pod that has succeeded": {Input{Pod: never, Last: reported(corev1.PodSucceeded)},
			want{Done: "succeeded"}},
		"of a pod that has failed": {Input{Pod: never, Last: reported(corev1.PodFailed)},
			want{Done: "failed"}},
		"of a pod that has ended, edited since": {Input{Pod: never, Hash: changed, Last: reported(corev1.PodFailed),
			Observed: one(exited("a", 0), exited("b", 1))}, want{Done: "failed"}},
		"the last container ends": {Input{Pod: never, Last: reported(corev1.PodRunning, status("a", 0, 1)),
			Observed: one(exited("b", 0))}, want{Done: "failed"}},
		"both, before the phase was reported": {Input{Pod: never,
			Last: reported(corev1.PodRunning, status("a", 0, 0), status("b", 0, 0))}, want{Done: "succeeded"}},
		"another container runs": {Input{Pod: never, Hash: changed,
			Last: reported(corev1.PodRunning, status("a", 0, 0)), Observed: one(running("b"))}, want{Sandbox: keep}},
		"with the sandbox, another is to run": {Input{Pod: spec(corev1.RestartPolicyOnFailure, apps("a", "b")),
			Last: reported(corev1.PodRunning, status("a", 0, 0), status("b", 3, 1)), Now: at(60)},
			want{Sandbox: Sandbox{Op: SandboxCreate}, Start: []string{"b #4 after 10s"}}},
		"one that ran, the other has succeeded": {Input{Pod: never, Last: reported(corev1.PodRunning, ran("a", 0)),
			Observed: one(exited("b", 0))}, want{Done: "failed"}},
		"one that ran, as reported since": {Input{Pod: never, Last: reported(corev1.PodRunning, gone("a", 1)),
			Observed: one(exited("b", 0))}, want{Done: "failed"}},
		"reported since, and is to run again": {Input{Pod: spec(corev1.RestartPolicyAlways, apps("a", "b")),
			Last: reported(corev1.PodRunning, gone("a", 5)), Observed: one(running("b")), Now: at(60)},
			want{Sandbox: keep, Start: []string{"a #5 after 0s"}}},
		"one that ran, another runs": {Input{Pod: never, Last: reported(corev1.PodRunning, ran("a", 0)),
			Observed: one(running("b"))}, want{Sandbox: keep}},
		"all that ran, with the sandbox": {Input{Pod: never,
			Last: reported(corev1.PodRunning, ran("a", 0), ran("b", 0))}, want{Done: "failed"}},
		"it ran, and is to run again": {Input{Pod: spec(corev1.RestartPolicyOnFailure, apps("a", "b")),
			Last: reported(corev1.PodRunning, ran("a", 4)), Observed: one(running("b")), Now: at(60)},
			want{Sandbox: keep, Start: []string{"a #5 after 0s"}}},
		"it is to run again": {Input{Pod: spec(corev1.RestartPolicyAlways, apps("a", "b")),
			Last: reported(corev1.PodRunning, status("a", 4, 1)), Observed: one(running("b")), Now: at(60)},
			want{Sandbox: keep, Start: []string{"a #5 after 0s"}}},
	} {
		t.Run(name, func(t *testing.T) { check(t, c.in, c.want) })
	}
}

// A probe's own grace overrides the pod's.
func TestProbeGrace(t *testing.T) {
	grace := new(int64(7))
	always := spec(corev1.RestartPolicyAlways, apps("app"))
	for name, c := range map[string]struct {
		probes Probes
		want   Kill
	}{
		"liveness": {Probes{Liveness: Failure, Grace: grace},
			Kill{Reason: KillLiveness, Grace: grace, Why: "Container app failed liveness probe, will be restarted"}},
		"startup": {Probes{Startup: Failure, Grace: grace},
			Kill{Reason: KillStartup, Grace: grace, Why: "Container app failed startup probe, will be restarted"}},
		"none": {Probes{Liveness: Failure},
			Kill{Reason: KillLiveness, Why: "Container app failed liveness probe, will be restarted"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.ID, c.want.Name = "app0", "app"
			p := Compute(Input{Pod: always, Observed: one(running("app")), Probes: map[string]Probes{"app0": c.probes},
				Now: at(10)})
			if diff := cmp.Diff([]Kill{c.want}, p.Kill); diff != "" {
				t.Errorf("kills (-want +got):\n%s", diff)
			}
		})
	}
}
