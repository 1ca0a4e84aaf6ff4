package resource

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// Two parts report the resources of running containers: the device plugins' side reports devices, the cgroups report
// CPUs and memory. Each Rebuild adds missing entries and removes nothing.
func TestRebuildAddsMissingParts(t *testing.T) {
	x, y := map[corev1.ResourceName][]device.ID{gpu: {"x"}}, map[corev1.ResourceName][]device.ID{gpu: {"y"}}
	l := newLedger(t.TempDir(), static(4))
	for _, found := range []map[types.UID]Allocation{
		{"a": {Containers: map[string]Holding{"app": {Devices: x}}},
			"b": {Containers: map[string]Holding{"app": {Devices: y}}}},
		{"a": {Containers: map[string]Holding{"app": {CPUs: cpuset.New(2, 3), Memory: mem(1, 1)}}}},
		{"a": {Containers: map[string]Holding{"app": {CPUs: cpuset.New(6, 7), Memory: mem(1, 3), Devices: y}}}},
		{"b": {Containers: map[string]Holding{"app": {CPUs: cpuset.New(3, 4)}}}}, // a holds CPU 3
	} {
		if _, err := l.Rebuild(found); err != nil {
			t.Fatal(err)
		}
	}
	want := Held{
		"a": {Containers: map[string]Holding{"app": {CPUs: cpuset.New(2, 3), Memory: mem(1, 1), Devices: x}}},
		"b": {Containers: map[string]Holding{"app": {Devices: y}}},
	}
	if diff := cmp.Diff(want, l.All(), sameSets); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Allocations of another agent take precedence. Own ones stay where they do not conflict, and are loaded again later.
func TestTakeOverPrefersTheOtherAgent(t *testing.T) {
	x, y, z := map[corev1.ResourceName][]device.ID{gpu: {"x"}}, map[corev1.ResourceName][]device.ID{gpu: {"y"}},
		map[corev1.ResourceName][]device.ID{gpu: {"z"}}
	dir := t.TempDir()
	l := newLedger(dir, static(4))
	for uid, g := range map[types.UID]Holding{"gone": {Devices: x}, "moved": {CPUs: cpuset.New(2, 3), Devices: y},
		"same": {CPUs: cpuset.New(4, 5)}} {
		if err := l.Commit(uid, Allocation{Containers: map[string]Holding{"app": g}}); err != nil {
			t.Fatal(err)
		}
	}
	lost, err := l.TakeOver(Held{"new": {Containers: map[string]Holding{"app": {Devices: x}}},
		"moved": {Containers: map[string]Holding{"app": {Devices: z}}}})
	if len(lost) != 1 || lost[0].UID != "gone" || err != nil {
		t.Errorf("lost %v, error %v", lost, err)
	}
	want := Held{
		"new":   {Containers: map[string]Holding{"app": {Devices: x}}},
		"moved": {Containers: map[string]Holding{"app": {CPUs: cpuset.New(2, 3), Devices: z}}},
		"same":  {Containers: map[string]Holding{"app": {CPUs: cpuset.New(4, 5)}}},
	}
	again := newLedger(dir, static(4))
	if _, err := again.Load(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, l.All(), sameSets) + cmp.Diff(want, again.All(), sameSets); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The memory of a container without a binding comes from all nodes. It is not taken for a reservation.
func TestInferIgnoresUnboundMemory(t *testing.T) {
	p := newPod("p", nil, sized("app", "cpu", "500m", "memory", "1Gi"))
	for want, nodes := range map[string]int{"": 2, "its own": 1} {
		all := topology.Of(0)
		if nodes == 2 {
			all = topology.Of(0, 1)
		}
		a := static(nodes).Infer(p, map[string]Place{"app": {CPUs: cpuset.New(0, 1), Nodes: all}})
		if got := len(a.Memory()) > 0; got != (want != "") {
			t.Errorf("on %d nodes: %v", nodes, a)
		}
	}
}
