package resize

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
)

// A resize of pod-level resources changes the pod's cgroup and the limits of containers without their own. The record
// of it outlives the agent.
func TestPodLevelInPlace(t *testing.T) {
	n, dir := &node{}, t.TempDir()
	r := start(t, n, dir)
	none := corev1.ResourceRequirements{}
	r.admit(withWhole(newPod(none), "1Gi"))
	want := withWhole(newPod(none), "2Gi")
	if got := r.allocate(want, "", "others"); got == want || got.Spec.Resources.Limits.Memory().String() != "1Gi" {
		t.Errorf("a deferred resize was granted: %v", got.Spec.Resources)
	}
	r.expect("deferred", []string{ResizeDeferred}, []string{"PodResizePending Deferred"})
	if got := r.allocate(want, "", ""); got != want {
		t.Error("a resize that fits was not granted")
	}
	r.expect("allocated", []string{ResizeStarted}, []string{"PodResizeInProgress "})
	if got := r.Actuated("u")[Whole]; got.Limits.Memory().String() != "1Gi" {
		t.Errorf("the pod has %v before the first pass", got)
	}
	r.pass(want, "a")
	r.expect("first pass", []string{"grow", "update a to -1", "fit"}, []string{"PodResizeInProgress "})
	r.pass(want, "a")
	r.expect("second pass", []string{ResizeCompleted}, nil)
	if got := r.Actuated("u")[Whole]; got.Limits.Memory().String() != "2Gi" {
		t.Errorf("the pod has %v", got)
	}
	if err := r.save("u"); err != nil {
		t.Fatal(err)
	}
	if got := start(t, n, dir).allocate(withWhole(newPod(none), "3Gi"), "", "others"); got.Spec.Resources.Limits.
		Memory().String() != "2Gi" {
		t.Errorf("the next agent runs %v", got.Spec.Resources)
	}
}

// Init containers that are no sidecars get other resources at their next start alone, if their gate is off.
func TestInitContainersAreNotAllocated(t *testing.T) {
	r := start(t, &node{}, t.TempDir())
	r.initFixed = true
	p, want := newPod(small), newPod(large)
	p.Spec.InitContainers, want.Spec.InitContainers = p.Spec.Containers, want.Spec.Containers
	p.Spec.Containers, want.Spec.Containers = nil, nil
	r.Admitted(p)
	if got := r.allocate(want, "never", "never"); got != want {
		t.Error("the resources of an init container wait for an allocation")
	}
}

// keeping starts Resizes that keep the files of a kubelet in root.
func keeping(t *testing.T, dir, root string) *Resizes {
	t.Helper()
	n := &node{}
	s := New(Options{Runtime: n, Cgroups: n, Resources: n, Allocations: n, Events: n, Dir: dir, KubeletDir: root,
		Pods: all{}, Log: slog.New(slog.DiscardHandler)})
	if err := s.Load(); err != nil {
		t.Fatal(err)
	}
	return s
}

// data returns the entries of a kubelet's file. It checks the checksum.
func data(t *testing.T, path string) map[types.UID]podInfo {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var s sealed
	var e entries
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(s.Data), &e); err != nil || s.Checksum != sum(s.Data) {
		t.Fatalf("%s: %v, checksum %d", s.Data, err, s.Checksum)
	}
	return e.Entries
}

// A kubelet that takes over finds what its pods have and what they were promised, in its own files.
func TestKubeletFiles(t *testing.T) {
	root := t.TempDir()
	s := keeping(t, t.TempDir(), root)
	r := rig{s, s.opts.Runtime.(*node), t}
	p := withWhole(newPod(corev1.ResourceRequirements{Requests: list("memory", "1Gi")}), "2Gi")
	r.admit(p)
	r.allocate(withWhole(newPod(needs("1", "1Gi", "1Gi")), "3Gi"), "", "")
	s.flush()
	whole := func(limit string) *corev1.ResourceRequirements {
		return &corev1.ResourceRequirements{Limits: list("memory", limit)}
	}
	want := map[types.UID]podInfo{"u": {PodLevelResources: whole("3Gi"),
		ContainerResources: map[string]corev1.ResourceRequirements{"app": needs("1", "1Gi", "1Gi")}}}
	if diff := cmp.Diff(want, data(t, filepath.Join(root, "allocated_pods_state"))); diff != "" {
		t.Errorf("allocated (-want +got):\n%s", diff)
	}
	want = map[types.UID]podInfo{"u": {PodLevelResources: whole("2Gi"),
		ContainerResources: map[string]corev1.ResourceRequirements{
			"app": {Requests: list("memory", "1Gi"), Limits: list("memory", "2Gi")}}}}
	if diff := cmp.Diff(want, data(t, filepath.Join(root, "actuated_pods_state"))); diff != "" {
		t.Errorf("actuated (-want +got):\n%s", diff)
	}
	s.Forget("u")
	s.flush()
	if got := data(t, filepath.Join(root, "allocated_pods_state")); len(got) != 0 {
		t.Errorf("a pod that is gone is still there: %v", got)
	}
}

// The file of a kubelet that ran last outweighs the records of an earlier agent. Berth's own file does not.
func TestTakeOverFromAKubelet(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	s := keeping(t, dir, root)
	s.Admitted(newPod(small))
	s.flush()
	again := func(s *Resizes) *corev1.Pod {
		return s.Allocate(newPod(large), func(*pod.Pod) string { return "" },
			func(*pod.Pod) string { return "others" }).Pod
	}
	if got := again(keeping(t, dir, root)).Spec.Containers[0].Resources; len(changes(got, small)) != 0 {
		t.Errorf("after an agent: %v", got)
	}
	// The text is the one that kubelet 1.36.3 wrote, and so is its checksum.
	kubelets := `{"data":"{\"entries\":{\"u\":{\"ContainerResources\":{\"app\":{\"limits\":{\"memory\":\"3Gi\"}}},` +
		`\"PodLevelResources\":null}}}","checksum":1901935124}`
	if err := os.WriteFile(filepath.Join(root, "allocated_pods_state"), []byte(kubelets), 0o600); err != nil {
		t.Fatal(err)
	}
	got := again(keeping(t, dir, root)).Spec.Containers[0].Resources
	if want := (corev1.ResourceRequirements{Limits: list("memory", "3Gi")}); len(changes(got, want)) != 0 {
		t.Errorf("after a kubelet: %v", got)
	}
}
