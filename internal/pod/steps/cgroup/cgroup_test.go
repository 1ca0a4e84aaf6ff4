package cgroup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/cgroup/hierarchy"
	"github.com/berth-run/berth/internal/pod/worker"
)

type recorded []string

func (r *recorded) Event(_ corev1.ObjectReference, _, reason, format string, args ...any) {
	*r = append(*r, reason+": "+fmt.Sprintf(format, args...))
}

// node returns a Cgroups below its own root on this machine.
// pods are the admitted pods of a node.
type pods []*corev1.Pod

func (p *pods) Pods() []*corev1.Pod { return *p }
func (p *pods) Wake(types.UID)      {}

func node(t testing.TB, c Config) *Cgroups {
	t.Helper()
	roottest.Need(t, "making cgroups")
	c.Driver, c.Root = hierarchy.Cgroupfs, fmt.Sprintf("/berth-test-%d", os.Getpid())
	c.Log = slog.New(slog.DiscardHandler)
	if c.Events == nil {
		c.Events = &recorded{}
	}
	if c.Fleet == nil {
		c.Fleet = &pods{}
	}
	n := New(c)
	tree, err := n.host.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		paths, err := tree.Paths(n.host.root)
		if err == nil {
			err = cgroups.RemovePaths(paths)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return n
}

func run(uid string, spec corev1.PodSpec) *worker.Run {
	return &worker.Run{Pod: &pod.Pod{Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app", UID: types.UID(uid)}, Spec: spec,
	}}}
}

// file reads a value whose file has different names on v1 and v2.
func file(t *testing.T, n *Cgroups, name hierarchy.Name, v1, v2 string) string {
	t.Helper()
	paths, err := n.host.tree.Paths(name)
	if err != nil {
		t.Fatal(err)
	}
	controller, _, _ := strings.Cut(v1, ".")
	if !n.host.tree.Has(controller) {
		t.Skipf("this machine lacks the controller %s", controller)
	}
	path := filepath.Join(paths[controller], v1)
	if n.host.tree.Unified() {
		path = filepath.Join(paths[""], v2)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func TestPodOnThisMachine(t *testing.T) {
	n := node(t, Config{Options: Options{CFSQuota: true, PidsLimit: 50}, Usable: list("cpu", "2", "memory", "8Gi")})
	bounded := list("cpu", "500m", "memory", "64Mi")
	r := run("11111111-2222-3333-4444-555555555555", apps(container(bounded, bounded)))
	step := n.Step()
	for range 2 { // idempotent
		if err := step.Setup(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	name := hierarchy.ParseName(n.Parent(r.Pod.Pod))
	want := map[string]string{"shares": "512", "quota": "50000", "memory": "67108864", "pids": "50",
		"all": "8589934592", "besteffort": "2"}
	got := map[string]string{
		"shares":     file(t, n, name, "cpu.shares", "cpu.weight"),
		"quota":      file(t, n, name, "cpu.cfs_quota_us", "cpu.max"),
		"memory":     file(t, n, name, "memory.limit_in_bytes", "memory.max"),
		"pids":       file(t, n, name, "pids.max", "pids.max"),
		"all":        file(t, n, level(n.host.root, corev1.PodQOSGuaranteed), "memory.limit_in_bytes", "memory.max"),
		"besteffort": file(t, n, level(n.host.root, corev1.PodQOSBestEffort), "cpu.shares", "cpu.weight"),
	}
	if n.host.tree.Unified() {
		want["shares"], want["quota"], want["besteffort"] = "59", "50000 100000", "1"
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if err := step.Teardown(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if n.host.tree.Exists(name) {
		t.Error("the cgroup is still there")
	}
	if err := step.Teardown(t.Context(), r); err != nil {
		t.Errorf("teardown of what is gone: %v", err)
	}
}

// The limits of a cgroup in use grow first and shrink last.
func TestResize(t *testing.T) {
	n := node(t, Config{Options: Options{CFSQuota: true}})
	spec := func(cpu, memory string) *worker.Run {
		r := list("cpu", cpu, "memory", memory)
		return run("21111111-2222-3333-4444-555555555555", apps(container(r, r)))
	}
	small, large := spec("100m", "32Mi"), spec("500m", "64Mi")
	name := hierarchy.ParseName(n.Parent(small.Pod.Pod))
	limits := func() []string {
		return []string{file(t, n, name, "cpu.cfs_quota_us", "cpu.max"),
			file(t, n, name, "memory.limit_in_bytes", "memory.max")}
	}
	setup := func(r *worker.Run) error { return n.Step().Setup(t.Context(), r) }
	used := func(r *worker.Run) *worker.Run {
		r.Observed = &pod.Observed{Containers: []pod.ContainerStatus{{State: pod.StateRunning}}}
		return r
	}
	before, after := []string{"10000", "33554432"}, []string{"50000", "67108864"}
	if n.host.tree.Unified() {
		before[0], after[0] = "10000 100000", "50000 100000"
	}
	for _, step := range []struct {
		name string
		do   func() error
		want []string
		fits *worker.Run
	}{
		{"set up", func() error { return setup(small) }, before, small},
		{"set up, in use", func() error { return setup(used(large)) }, before, small},
		{"grow", func() error { return n.Grow(large.Pod.Pod) }, after, small},
		{"fit", func() error { return n.Fit(large.Pod.Pod) }, after, large},
		{"grow to less", func() error { return n.Grow(small.Pod.Pod) }, after, large},
		{"fit to less", func() error { return n.Fit(small.Pod.Pod) }, before, small},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if d := cmp.Diff(step.want, limits()); d != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, d)
		}
		if !n.Fits(step.fits.Pod.Pod) {
			t.Errorf("%s: other limits than were set are remembered", step.name)
		}
	}
}

func TestLevelsAreMadeAgain(t *testing.T) {
	n := node(t, Config{})
	if err := n.Step().Setup(t.Context(), run("u1", apps(container(nil, nil)))); err != nil {
		t.Fatal(err)
	}
	if err := n.host.tree.Remove(level(n.host.root, corev1.PodQOSGuaranteed)); err != nil {
		t.Fatal(err)
	}
	if err := n.Step().Setup(t.Context(), run("u2", apps(container(nil, nil)))); err != nil {
		t.Fatal(err)
	}
	if !n.host.tree.Complete(level(n.host.root, corev1.PodQOSBurstable)) {
		t.Error("the level of Burstable pods is not there again")
	}
}

func TestTeardownKillsWhatRuns(t *testing.T) {
	n := node(t, Config{})
	inner := killsWhatRuns(t, n, func(r *worker.Run) error { return n.Step().Teardown(t.Context(), r) })
	if n.host.tree.Exists(inner) {
		t.Error("the container's cgroup is still there")
	}
}

func TestEmptyKillsWhatRuns(t *testing.T) {
	n := node(t, Config{})
	if err := n.Empty(t.Context(), run("none", apps(container(nil, nil))).Pod.Pod); err != nil {
		t.Errorf("a pod without a cgroup: %v", err)
	}
	inner := killsWhatRuns(t, n, func(r *worker.Run) error { return n.Empty(t.Context(), r.Pod.Pod) })
	if !n.host.tree.Exists(inner) {
		t.Error("the container's cgroup is the runtime's to remove")
	}
}

// killsWhatRuns calls end for a pod with a process, checks that it was killed, and returns the pod's cgroup.
func killsWhatRuns(t *testing.T, n *Cgroups, end func(*worker.Run) error) hierarchy.Name {
	t.Helper()
	r := run("u1", apps(container(nil, nil)))
	if err := n.Step().Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	// A child cgroup like a container's, with a process that ignores SIGTERM and has a child.
	inner := hierarchy.ParseName(n.Parent(r.Pod.Pod)).Child("container")
	if err := n.host.tree.Apply(inner, hierarchy.Limits{}); err != nil {
		t.Fatal(err)
	}
	paths, err := n.host.tree.Paths(inner)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range paths { // the runtime also makes one in devices
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-c", "trap '' TERM; sleep 1000 & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid,
			syscall.SIGKILL) // also the child, if it began before its parent was in the cgroup
		if cmd.ProcessState == nil {
			_ = cmd.Wait()
		}
	})
	for _, dir := range paths {
		if err := cgroups.WriteCgroupProc(dir, cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	if err := end(r); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the process ended with %v, want SIGKILL", err)
	}
	return inner
}

func TestOrphans(t *testing.T) {
	n := node(t, Config{})
	if got, err := n.Orphans(func(types.UID) bool { return false }); err != nil || len(got) != 0 {
		t.Errorf("before the first pod: %v, %v", got, err)
	}
	burst := apps(container(list("cpu", "100m"), nil))
	for uid, spec := range map[string]corev1.PodSpec{"known": apps(container(nil, nil)), "lost-1": burst,
		"lost-2": apps(container(nil, nil))} {
		if err := n.Step().Setup(t.Context(), run(uid, spec)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := n.Orphans(func(uid types.UID) bool { return uid == "known" })
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]types.UID{"lost-1", "lost-2"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, uid := range got {
		if err := n.Remove(t.Context(), uid); err != nil {
			t.Error(err)
		}
	}
	if got, err := n.Orphans(func(uid types.UID) bool { return uid == "known" }); err != nil || len(got) != 0 {
		t.Errorf("after their removal: %v, %v", got, err)
	}
}

func TestSharesFollowThePods(t *testing.T) {
	var fleet pods
	n := node(t, Config{Fleet: &fleet})
	r := run("u1", apps(container(list("cpu", "2"), nil)))
	if err := n.Step().Setup(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	fleet = pods{r.Pod.Pod}
	select {
	case <-n.changed.C():
	default:
		t.Fatal("Setup of a Burstable pod wakes nobody")
	}
	if err := n.levels.follow(); err != nil {
		t.Fatal(err)
	}
	want := "2048"
	if n.host.tree.Unified() {
		want = "174"
	}
	if got := file(t, n, level(n.host.root, corev1.PodQOSBurstable), "cpu.shares", "cpu.weight"); got != want {
		t.Errorf("shares = %s, want %s", got, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestFailureIsReportedInAnEvent(t *testing.T) {
	events := &recorded{}
	n := node(t, Config{Events: events})
	err := n.Step().Setup(t.Context(), run("../escape", apps(container(nil, nil))))
	if reason.Of(err) != reason.FailedPodCgroup {
		t.Errorf("got %v, want the reason %s", err, reason.FailedPodCgroup)
	}
	want := recorded{
		`FailedCreatePodContainer: unable to ensure pod container exists: the pod's UID "../escape" cannot be part ` +
			`of a path`}
	if d := cmp.Diff(want, *events); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

// BenchmarkSetup measures the part of the step that a pod's start waits for.
func BenchmarkSetup(b *testing.B) {
	n := node(b, Config{Options: Options{CFSQuota: true, PidsLimit: 50}})
	bounded := list("cpu", "500m", "memory", "64Mi")
	step, i := n.Step(), 0
	for b.Loop() {
		i++
		r := run(fmt.Sprintf("u%d", i), apps(container(bounded, bounded)))
		if err := step.Setup(b.Context(), r); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := step.Teardown(b.Context(), r); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
