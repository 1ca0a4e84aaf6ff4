package resize

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// all are pods that are all known.
type all struct{}

func (all) Known(types.UID) bool { return true }

// node records the calls of its methods in order.
type node struct {
	fixed   string // why nothing can change
	refuses error  // the runtime's answer to the resources of a pod
	log     []string
	fits    corev1.ResourceRequirements // in the pod's cgroup
	used    uint64                      // memory usage of each container
	broke   error                       // the error of updates
}

func (n *node) UpdateContainerResources(_ context.Context, r *runtimeapi.UpdateContainerResourcesRequest,
	_ ...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	n.log = append(n.log, fmt.Sprintf("update %s to %d", r.ContainerId, r.Linux.MemoryLimitInBytes))
	return nil, n.broke
}

func (n *node) ContainerStats(context.Context, *runtimeapi.ContainerStatsRequest,
	...grpc.CallOption) (*runtimeapi.ContainerStatsResponse, error) {
	return &runtimeapi.ContainerStatsResponse{Stats: &runtimeapi.ContainerStats{
		Memory: &runtimeapi.MemoryUsage{UsageBytes: &runtimeapi.UInt64Value{Value: n.used}}}}, nil
}

func (n *node) UpdatePodSandboxResources(_ context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest,
	_ ...grpc.CallOption) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	n.log = append(n.log, fmt.Sprintf("propose %s %d", r.PodSandboxId, r.Resources.GetMemoryLimitInBytes()))
	return nil, n.refuses
}

func (n *node) PodResources(p *corev1.Pod) (containers, overhead *runtimeapi.LinuxContainerResources) {
	return n.Resources(p, pod.Containers(p)[0]), nil
}

func (n *node) Fits(p *corev1.Pod) bool {
	return len(changes(n.fits, p.Spec.Containers[0].Resources)) == 0
}

func (n *node) Grow(*corev1.Pod) error { n.log = append(n.log, "grow"); return nil }

func (n *node) Fixed(_, _ *corev1.Pod) string { return n.fixed }

func (n *node) Resources(_ *corev1.Pod, c pod.Container) *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: c.Resources.Limits.Memory().Value()}
}

func (n *node) Fit(p *corev1.Pod) error {
	n.log, n.fits = append(n.log, "fit"), p.Spec.Containers[0].Resources
	return nil
}

func (n *node) Event(_ corev1.ObjectReference, _, reason, _ string, _ ...any) {
	n.log = append(n.log, reason)
}

// Go runs a task at once, as if the worker had waited for it.
func (n *node) Go(ctx context.Context, _ string, f func(context.Context) error) bool {
	if err := f(ctx); err != nil {
		n.log = append(n.log, "failed")
	}
	return true
}

func (n *node) did() []string {
	log := n.log
	n.log = nil
	return log
}

type rig struct {
	*Resizes
	node *node
	t    *testing.T
}

func start(t *testing.T, n *node, dir string) rig {
	t.Helper()
	s := New(Options{
		Runtime: n, Cgroups: n, Resources: n, Allocations: n, Events: n, Dir: dir,
		Pods: all{}, Log: slog.New(slog.DiscardHandler),
	})
	if err := s.Load(); err != nil {
		t.Fatal(err)
	}
	return rig{s, n, t}
}

// admit records a pod's admission and the start of its container.
func (r rig) admit(p *pod.Pod) {
	r.t.Helper()
	r.Admitted(p)
	r.started(p, "a")
	r.node.fits = p.Spec.Containers[0].Resources
	r.pass(p, "a")
	r.node.did()
}

func (r rig) started(p *pod.Pod, id string) {
	r.t.Helper()
	c, _ := pod.FindContainer(p.Pod, "app")
	if err := r.PreStart(r.t.Context(), p.Pod, c, id); err != nil {
		r.t.Fatal(err)
	}
}

func (r rig) allocate(want *pod.Pod, alone, beside string) *pod.Pod {
	say := func(text string) func(*pod.Pod) string { return func(*pod.Pod) string { return text } }
	return r.Allocate(want, say(alone), say(beside))
}

func (r rig) pass(p *pod.Pod, id string) {
	r.actuator.setup(r.t.Context(), p, runs(id), r.node)
}

// conditions returns the type and reason of each condition.
func (r rig) conditions() []string {
	var all []string
	for _, c := range r.Conditions("u") {
		all = append(all, string(c.Type)+" "+c.Reason)
	}
	return all
}

func (r rig) expect(when string, did, conditions []string) {
	r.t.Helper()
	if diff := cmp.Diff(did, r.node.did()); diff != "" {
		r.t.Errorf("%s: done (-want +got):\n%s", when, diff)
	}
	if diff := cmp.Diff(conditions, r.conditions()); diff != "" {
		r.t.Errorf("%s: conditions (-want +got):\n%s", when, diff)
	}
}

var (
	small = needs("1", "1Gi", "1Gi")
	large = needs("1", "1Gi", "2Gi")
)

func TestInPlace(t *testing.T) {
	r := start(t, &node{}, t.TempDir())
	r.admit(newPod(small))

	want := newPod(large)
	want.Generation = 3
	if got := r.allocate(want, "", ""); got != want {
		t.Error("a resize that fits was not granted")
	}
	if got := r.Conditions("u")[0].ObservedGeneration; got != 3 {
		t.Errorf("observed generation %d, want 3", got)
	}
	r.expect("allocated", []string{ResizeStarted}, []string{"PodResizeInProgress "})
	r.pass(want, "a")
	r.expect("first pass", []string{"grow", "update a to 2147483648", "fit"}, []string{"PodResizeInProgress "})
	r.pass(want, "a")
	r.expect("second pass", []string{ResizeCompleted}, nil)
	r.pass(want, "a")
	r.expect("third pass", nil, nil)
	if diff := cmp.Diff(Sizes{"a": large}, r.Actuated("u")); diff != "" {
		t.Errorf("actuated (-want +got):\n%s", diff)
	}
}

func TestPending(t *testing.T) {
	r := start(t, &node{}, t.TempDir())
	r.admit(newPod(small))
	want := newPod(large)
	for _, try := range []struct {
		alone, beside string
		generation    int64
		did           []string
		conditions    []string
	}{
		{"", "others", 1, []string{ResizeDeferred}, []string{"PodResizePending Deferred"}},
		{"", "yet others", 1, nil, []string{"PodResizePending Deferred"}},
		{"too much", "others", 1, nil, []string{"PodResizePending Deferred"}},
		{"", "others", 2, []string{ResizeDeferred}, []string{"PodResizePending Deferred"}},
	} {
		want.Generation = try.generation
		got := r.allocate(want, try.alone, try.beside)
		if diff := cmp.Diff(small, got.Spec.Containers[0].Resources); diff != "" {
			t.Errorf("allocated (-want +got):\n%s", diff)
		}
		r.expect(try.alone+try.beside, try.did, try.conditions)
		if got := r.Conditions("u")[0].ObservedGeneration; got != try.generation {
			t.Errorf("observed generation %d, want %d", got, try.generation)
		}
	}
	if r.allocate(want, "", "") != want {
		t.Error("the deferred resize was not granted after there was room")
	}
	r.expect("free", []string{ResizeStarted}, []string{"PodResizeInProgress "})
}

func TestWithdrawn(t *testing.T) {
	r := start(t, &node{}, t.TempDir())
	r.admit(newPod(small))
	r.allocate(newPod(large), "", "others")
	r.node.did()
	r.allocate(newPod(small), "", "")
	r.expect("asked for no more", nil, nil)
}

func TestMemoryInUse(t *testing.T) {
	r := start(t, &node{used: 3 << 29}, t.TempDir())
	r.admit(newPod(large))
	want := r.allocate(newPod(small), "", "")
	r.node.did()
	r.pass(want, "a")
	r.expect("in use", []string{"grow", ResizeError, "failed"}, []string{"PodResizeInProgress Error"})
	r.pass(want, "a")
	r.expect("still in use", []string{"grow", "failed"}, []string{"PodResizeInProgress Error"})
	r.node.used = 1 << 20
	r.pass(want, "a")
	r.expect("given back", []string{"grow", "update a to 1073741824", "fit"}, []string{"PodResizeInProgress "})
}

func TestRuntimeRefuses(t *testing.T) {
	r := start(t, &node{broke: errors.New("no")}, t.TempDir())
	r.admit(newPod(small))
	want := r.allocate(newPod(large), "", "")
	r.node.did()
	r.pass(want, "a")
	r.expect("refused", []string{"grow", "update a to 2147483648", ResizeError, "failed"},
		[]string{"PodResizeInProgress Error"})
}

func TestRestart(t *testing.T) {
	dir := t.TempDir()
	r := start(t, &node{}, dir)
	r.admit(newPod(small, corev1.ResourceMemory))
	want := r.allocate(newPod(large, corev1.ResourceMemory), "", "")
	r.node.did()
	r.pass(want, "a")
	r.expect("marked", []string{"grow"}, []string{"PodResizeInProgress "})

	// The mark is stored: the next agent restarts the container too.
	r = start(t, r.node, dir)
	if diff := cmp.Diff(map[string]bool{"a": true}, r.Restarts("u")); diff != "" {
		t.Errorf("to restart (-want +got):\n%s", diff)
	}
	r.pass(want, "a")
	r.expect("waiting for the restart", nil, []string{"PodResizeInProgress "})
	r.started(want, "b")
	if diff := cmp.Diff(map[string]bool{"a": true}, r.Restarts("u")); diff != "" {
		t.Errorf("to restart while the plan may not have seen the new instance (-want +got):\n%s", diff)
	}
	r.pass(want, "b")
	r.expect("restarted", []string{"grow", "fit"}, []string{"PodResizeInProgress "})
	r.pass(want, "b")
	r.expect("fits", []string{ResizeCompleted}, nil)
}

// A container that ended by itself meanwhile has started with the new resources, and need not restart once more.
func TestRestartOfAContainerThatEnded(t *testing.T) {
	r := start(t, &node{}, t.TempDir())
	r.admit(newPod(small, corev1.ResourceMemory))
	want := r.allocate(newPod(large, corev1.ResourceMemory), "", "")
	seen := work{restarts: map[string]string{"app": "a"}}
	r.started(want, "b")
	if err := r.actuator.carryOut(t.Context(), want.Pod, "", seen); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]bool{}, r.Restarts("u")); diff != "" {
		t.Errorf("to restart (-want +got):\n%s", diff)
	}
}

// A container that is stopped because of a change of its spec starts again, whatever its restart policy says and also
// under the next agent.
func TestReplaceIsKept(t *testing.T) {
	dir := t.TempDir()
	r := start(t, &node{}, dir)
	p := newPod(small)
	r.admit(p)
	if err := r.Replace("u", "app", "a"); err != nil {
		t.Fatal(err)
	}
	r = start(t, r.node, dir)
	if diff := cmp.Diff(map[string]bool{"a": true}, r.Restarts("u")); diff != "" {
		t.Errorf("to start again (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Sizes{"a": small}, r.Actuated("u")); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	for _, id := range []string{"b", "c"} { // b may be removed because it does not start
		r.started(p, id)
		if diff := cmp.Diff(map[string]bool{"a": true}, r.Restarts("u")); diff != "" {
			t.Errorf("to start again after the start of %s (-want +got):\n%s", id, diff)
		}
	}
}

// The stored allocation counts after a restart of the agent, even if the manifest has changed since. Run writes the
// remaining records when it ends.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	r := start(t, &node{}, dir)
	r.admit(newPod(small))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v", err)
	}

	r = start(t, r.node, dir)
	got := r.allocate(newPod(large), "", "others")
	if diff := cmp.Diff(small, got.Spec.Containers[0].Resources); diff != "" {
		t.Errorf("allocated (-want +got):\n%s", diff)
	}
	r.Forget("u")
	r.flush()
	r = start(t, r.node, dir)
	if want := newPod(large); r.allocate(want, "", "others") != want {
		t.Error("a forgotten pod still has an entry")
	}
}

func TestEventsAreJSON(t *testing.T) {
	want := `{"containers":[{"name":"app","resources":{"limits":{"memory":"2Gi"},` +
		`"requests":{"cpu":"1","memory":"1Gi"}}}],"generation":7,"error":"no room"}`
	if diff := cmp.Diff(want, describe(newPod(large).Pod, 7, "no room")); diff != "" {
		t.Error(diff)
	}
}

// The runtime hears of the resources of the whole pod first. It may refuse them, or not have the call.
func TestRuntimeMayRefuseAResize(t *testing.T) {
	for name, c := range map[string]struct {
		err        error
		did        []string
		conditions []string
	}{
		"agrees": {nil, []string{"propose box 2147483648", "grow", "update a to 2147483648", "fit"},
			[]string{"PodResizeInProgress "}},
		"without the call": {status.Error(codes.Unimplemented, "no"),
			[]string{"propose box 2147483648", "grow", "update a to 2147483648", "fit"},
			[]string{"PodResizeInProgress "}},
		"refuses": {status.Error(codes.ResourceExhausted, "no"),
			[]string{"propose box 2147483648", ResizeError, "failed"}, []string{"PodResizeInProgress Error"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, &node{refuses: c.err}, t.TempDir())
			r.admit(newPod(small))
			want := r.allocate(newPod(large), "", "")
			r.node.did()
			o := runs("a")
			o.Sandboxes = []pod.SandboxStatus{{ID: "box", Ready: true, IPs: []string{"10.0.0.7"}}}
			r.actuator.setup(t.Context(), want, o, r.node)
			r.expect(name, c.did, c.conditions)
		})
	}
}
