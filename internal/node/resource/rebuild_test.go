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

// What runs is told by several: devices by who speaks with their plugins, CPUs and
// memory by cgroups. Each adds what is lacking, and takes nothing away.
func TestRebuildAddsWhatIsLacking(t *testing.T) {
	x, y := map[corev1.ResourceName][]device.ID{gpu: {"x"}}, map[corev1.ResourceName][]device.ID{gpu: {"y"}}
	l := newLedger(t.TempDir(), static(4))
	for _, found := range []map[types.UID]Allocation{
		{"a": {Containers: map[string]Given{"app": {Devices: x}}},
			"b": {Containers: map[string]Given{"app": {Devices: y}}}},
		{"a": {Containers: map[string]Given{"app": {CPUs: cpuset.New(2, 3), Memory: mem(1, 1)}}}},
		{"a": {Containers: map[string]Given{"app": {CPUs: cpuset.New(6, 7), Memory: mem(1, 3), Devices: y}}}},
		{"b": {Containers: map[string]Given{"app": {CPUs: cpuset.New(3, 4)}}}}, // a has 3
	} {
		if _, err := l.Rebuild(found); err != nil {
			t.Fatal(err)
		}
	}
	want := Held{
		"a": {Containers: map[string]Given{"app": {CPUs: cpuset.New(2, 3), Memory: mem(1, 1), Devices: x}}},
		"b": {Containers: map[string]Given{"app": {Devices: y}}},
	}
	if diff := cmp.Diff(want, l.All(), sameSets); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What another agent wrote down last counts; what is here stays where it fits beside it,
// and is found again.
func TestTakeOver(t *testing.T) {
	x, y, z := map[corev1.ResourceName][]device.ID{gpu: {"x"}}, map[corev1.ResourceName][]device.ID{gpu: {"y"}},
		map[corev1.ResourceName][]device.ID{gpu: {"z"}}
	dir := t.TempDir()
	l := newLedger(dir, static(4))
	for uid, g := range map[types.UID]Given{"gone": {Devices: x}, "moved": {CPUs: cpuset.New(2, 3), Devices: y},
		"same": {CPUs: cpuset.New(4, 5)}} {
		if err := l.Commit(uid, Allocation{Containers: map[string]Given{"app": g}}); err != nil {
			t.Fatal(err)
		}
	}
	lost, err := l.TakeOver(Held{"new": {Containers: map[string]Given{"app": {Devices: x}}},
		"moved": {Containers: map[string]Given{"app": {Devices: z}}}})
	if len(lost) != 1 || lost[0].UID != "gone" || err != nil {
		t.Errorf("lost %v, error %v", lost, err)
	}
	want := Held{
		"new":   {Containers: map[string]Given{"app": {Devices: x}}},
		"moved": {Containers: map[string]Given{"app": {CPUs: cpuset.New(2, 3), Devices: z}}},
		"same":  {Containers: map[string]Given{"app": {CPUs: cpuset.New(4, 5)}}},
	}
	again := newLedger(dir, static(4))
	if _, err := again.Load(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, l.All(), sameSets) + cmp.Diff(want, again.All(), sameSets); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Memory of a container that was never given any comes from all nodes.
func TestMemoryFromAnywhereIsNobodys(t *testing.T) {
	p := newPod("p", nil, sized("app", "cpu", "500m", "memory", "1Gi"))
	for want, nodes := range map[string]int{"": 2, "its own": 1} {
		all := topology.Of(0)
		if nodes == 2 {
			all = topology.Of(0, 1)
		}
		a := static(nodes).Found(p, map[string]Place{"app": {CPUs: cpuset.New(0, 1), Nodes: all}})
		if got := len(a.Memory()) > 0; got != (want != "") {
			t.Errorf("on %d nodes: %v", nodes, a)
		}
	}
}
