package container

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
)

func notFound() error { return status.Error(codes.NotFound, "no such container") }

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

func TestSeenIn(t *testing.T) {
	at := time.Unix(1000, 0)
	started := effect{id: "c1", state: pod.StateRunning, at: at}
	stopped := effect{id: "c1", state: pod.StateExited, at: at}
	seen := func(at time.Time, states ...pod.ContainerState) *pod.Observed {
		o := &pod.Observed{At: at}
		for _, s := range states {
			o.Containers = append(o.Containers, pod.ContainerStatus{ID: "c1", State: s})
		}
		return o
	}
	cases := []struct {
		name   string
		effect effect
		in     *pod.Observed
		want   bool
	}{
		{"nothing done", effect{}, nil, true},
		{"never read", started, nil, false},
		{"read before it was made", started, seen(at), false},
		{"gone since", started, seen(at.Add(1)), true},
		{"read before it was started", started, seen(at, pod.StateCreated), false},
		{"running", started, seen(at, pod.StateRunning), true},
		{"ended already", started, seen(at, pod.StateExited), true},
		{"read before it was stopped", stopped, seen(at.Add(-1), pod.StateRunning), false},
		{"stopped", stopped, seen(at, pod.StateExited), true},
		{"stopped and removed", stopped, seen(at), true},
		{"its pod removed", stopped, nil, true},
		{"only created", effect{id: "c1", state: pod.StateCreated, at: at}, seen(at, pod.StateCreated), true},
	}
	for _, c := range cases {
		if got := c.effect.seenIn(c.in); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestWaitsFor(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}},
		Containers:     []corev1.Container{{Name: "a"}, {Name: "b"}, {Name: "c"}},
	}}
	var starts []plan.Start
	for _, c := range pod.Containers(p) {
		if c.Name != "b" {
			starts = append(starts, plan.Start{Container: c})
		}
	}
	ran := func(name, sandbox string) *pod.Observed {
		return &pod.Observed{Containers: []pod.ContainerStatus{{Name: name, SandboxID: sandbox}}}
	}
	cases := []struct {
		container string
		observed  *pod.Observed
		anew      bool
		want      []string
	}{
		{"init", nil, false, nil},
		{"a", nil, false, nil},
		{"c", nil, false, []string{"a"}},
		{"c", ran("c", "old"), false, []string{"a"}},
		{"c", ran("c", "now"), false, nil},
		{"c", ran("c", "now"), true, []string{"a"}},
		{"c", ran("a", "now"), false, []string{"a"}},
	}
	for _, c := range cases {
		k, _ := pod.FindContainer(p, c.container)
		if diff := cmp.Diff(c.want,
			waitsFor(plan.Start{Container: k, Anew: c.anew}, starts, c.observed, "now")); diff != "" {
			t.Errorf("%s: %s", c.container, diff)
		}
	}
}

func TestAwaited(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "one"}, {Name: "two"}},
		Containers:     []corev1.Container{{Name: "a"}, {Name: "b"}},
	}}
	starts := func(names ...string) (list []plan.Start) {
		for _, name := range names {
			c, _ := pod.FindContainer(p, name)
			list = append(list, plan.Start{Container: c})
		}
		return list
	}
	wait := func(why string, names ...string) (list []plan.Waiting) {
		for _, name := range names {
			list = append(list, plan.Waiting{Name: name, Reason: why})
		}
		return list
	}
	for name, c := range map[string]struct {
		plan plan.Plan
		want []string
	}{
		"first starts": {plan.Plan{Start: starts("one"), Waiting: wait(reason.PodInitializing, "two", "a", "b")},
			nil},
		"first runs": {plan.Plan{Waiting: wait(reason.PodInitializing, "two", "a", "b")},
			[]string{"init container one"}},
		"second starts": {plan.Plan{Start: starts("two"), Waiting: wait(reason.PodInitializing, "a", "b")}, nil},
		"second runs": {plan.Plan{Waiting: wait(reason.PodInitializing, "a", "b")},
			[]string{"init container two"}},
		"apps start":  {plan.Plan{Start: starts("a", "b")}, nil},
		"one crashes": {plan.Plan{Waiting: wait(reason.CrashLoopBackOff, "b")}, []string{"back-off of b"}},
		"an init crashes": {plan.Plan{Waiting: append(wait(reason.CrashLoopBackOff, "one"),
			wait(reason.PodInitializing, "two", "a", "b")...)}, []string{"back-off of one"}},
		"all that is to be": {plan.Plan{}, nil},
	} {
		if diff := cmp.Diff(c.want, awaited(p, c.plan)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestStopOrder(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	p := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{
			{Name: "init"}, {Name: "s1", RestartPolicy: &always}, {Name: "s2", RestartPolicy: &always},
			{Name: "s3", RestartPolicy: &always},
		},
		Containers: []corev1.Container{{Name: "a"}, {Name: "b"}},
		EphemeralContainers: []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
	}}
	observed := func(names ...string) *pod.Observed {
		o := &pod.Observed{}
		for _, name := range names {
			o.Containers = append(o.Containers,
				pod.ContainerStatus{ID: "id-" + name, Name: name, State: pod.StateRunning})
		}
		return o
	}
	some := observed("s1", "s2", "s3", "a", "b")
	some.Containers[1].State, some.Containers[3].State, some.Containers[4].State = pod.StateExited, pod.StateCreated,
		pod.StateUnknown
	cases := []struct {
		name string
		in   *pod.Observed
		want []turn
	}{
		{"nothing known", nil, nil},
		{"apps", observed("a", "b", "debug"),
			[]turn{{id: "id-a", name: "a"}, {id: "id-b", name: "b"}, {id: "id-debug", name: "debug"}}},
		{"sidecars", observed("s1", "s2", "a", "debug"), []turn{
			{id: "id-s1", name: "s1", after: []string{"id-s2", "id-a", "id-debug"}},
			{id: "id-s2", name: "s2", after: []string{"id-a", "id-debug"}},
			{id: "id-a", name: "a"}, {id: "id-debug", name: "debug"},
		}},
		{"what does not run is not waited for", some, []turn{
			{id: "id-s1", name: "s1", after: []string{"id-s3", "id-b"}},
			{id: "id-s3", name: "s3", after: []string{"id-b"}}, {id: "id-b", name: "b"},
		}},
		{"during init", observed("init", "s1"),
			[]turn{{id: "id-init", name: "init"}, {id: "id-s1", name: "s1", after: []string{"id-init"}}}},
		{"unknown to the spec", observed("s1", "old"),
			[]turn{{id: "id-s1", name: "s1", after: []string{"id-old"}}, {id: "id-old", name: "old"}}},
	}
	for _, c := range cases {
		if diff := cmp.Diff(c.want, stopOrder(p, c.in), cmp.AllowUnexported(turn{})); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestStopTimeout(t *testing.T) {
	cases := []struct {
		left, since time.Duration
		want        int64
	}{
		{30 * time.Second, -1, 30},
		{30*time.Second - 1, -1, 30},
		{2 * time.Second, -1, 2},
		{time.Second, -1, 2},
		{0, -1, 2},
		{-time.Minute, -1, 2},
		{4 * time.Second, 10 * time.Second, 4},
		{0, 10 * time.Second, 0},
		{0, 0, 2},
		{-time.Minute, time.Second, 1},
	}
	for _, c := range cases {
		if got := stopTimeout(c.left, c.since, minStop); got != c.want {
			t.Errorf("%v left, signalled for %v: %d, want %d", c.left, c.since, got, c.want)
		}
	}
	for left, want := range map[time.Duration]int64{-time.Second: 0, 0: 0, time.Second: 1, 1500 * time.Millisecond: 2} {
		if got := stopTimeout(left, -1, 0); got != want {
			t.Errorf("%v left of an exact grace period: %d, want %d", left, got, want)
		}
	}
}

func TestFailureEvent(t *testing.T) {
	cases := []struct{ why, message, reason, text string }{
		{reason.ErrImagePull, "no route", reason.Failed, "Error: ErrImagePull"},
		{reason.ImagePullBackOff, "Back-off", reason.Failed, "Error: ImagePullBackOff"},
		{reason.CreateContainerConfigError, "no volume", reason.Failed, "Error: no volume"},
		{reason.Blocked, "no AppArmor", reason.Failed, "Error: no AppArmor"},
		{reason.PreCreateHookError, "no", reason.Failed, "Internal PreCreateContainer hook failed: no"},
		{reason.CreateContainerError, "disk full", reason.Failed, "Error: disk full"},
		{reason.PreStartHookError, "no", reason.Failed, "Internal PreStartContainer hook failed: no"},
		{reason.RunContainerError, "container c0ffee failed", reason.Failed, "Error: container app failed"},
		{reason.PostStartHookError, "secret", reason.FailedPostStartHook, "PostStartHook failed"},
	}
	for _, c := range cases {
		if r, text := failureEvent(c.why, c.message, "c0ffee", "app"); r != c.reason || text != c.text {
			t.Errorf("%s: %s %q", c.why, r, text)
		}
	}
}
