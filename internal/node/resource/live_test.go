package resource

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

func at(nodes topology.Nodes, ids ...int) Place { return Place{CPUs: cpuset.New(ids...), Nodes: nodes} }

func TestInfer(t *testing.T) {
	p := newPod("p", []corev1.Container{sized("init", "cpu", "2", "memory", "1Gi")},
		sized("app", "cpu", "2", "memory", "1Gi"), sized("part", "cpu", "500m", "memory", "2Gi"))
	bubble := whole(newPod("p", nil, sized("own", "cpu", "1", "memory", "1Gi"), corev1.Container{Name: "rest"}), "cpu",
		"4", "memory", "6Gi")
	tests := []struct {
		name string
		node Node
		pod  *corev1.Pod
		live map[string]Place
		want Allocation
	}{
		{name: "nothing runs", node: static(4), pod: p, want: Allocation{Containers: map[string]Holding{}}},
		{
			name: "what the pod is due", node: static(4), pod: p,
			live: map[string]Place{"app": at(topology.Of(1), 2, 3), "part": at(topology.Of(0), 0, 1, 4)},
			want: Allocation{Containers: map[string]Holding{"app": {CPUs: cpuset.New(2, 3), Memory: mem(1, 1)},
				"part": {Memory: mem(2, 0)}}},
		},
		{
			name: "another number of CPUs than due", node: static(4), pod: p,
			live: map[string]Place{"app": at(0, 0, 1, 2)},
			want: Allocation{Containers: map[string]Holding{}},
		},
		{name: "the policy allocates none", node: Node{Machine: wide(4)}, pod: p,
			live: map[string]Place{"app": at(topology.Of(1), 2, 3)},
			want: Allocation{Containers: map[string]Holding{}}},
		{
			name: "a bubble", node: aligned(topology.Restricted, topology.ScopePod), pod: bubble,
			live: map[string]Place{"own": at(topology.Of(1, 2), 2), "rest": at(topology.Of(1, 2), 3, 4, 5)},
			want: Allocation{Containers: map[string]Holding{"own": {CPUs: cpuset.New(2)}},
				Pod: Holding{CPUs: cpuset.New(2, 3, 4, 5), Memory: mem(6, 1, 2)}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.node.Infer(tt.pod, tt.live), sameSets); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestResizeConflict(t *testing.T) {
	const noCPUs = `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`
	const noMemory = `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`
	one := func(cpu, memory string) *corev1.Pod {
		return newPod("p", nil, sized("app", "cpu", cpu, "memory", memory))
	}
	onlyCPUs, burst := static(2), one("2", "1Gi")
	onlyCPUs.Policy.Memory = false
	burst.Spec.Containers[0].Resources.Limits = nil
	bubble := func(cpu string) *corev1.Pod {
		return whole(newPod("p", nil, corev1.Container{Name: "app"}), "cpu", cpu, "memory", "1Gi")
	}
	tests := []struct {
		name      string
		node      Node
		was, want *corev1.Pod
		fixed     string
	}{
		{"nothing is pinned", Node{Machine: wide(2)}, one("2", "1Gi"), one("1", "2Gi"), ""},
		{"exclusive CPUs", static(2), one("2", "1Gi"), one("1", "1Gi"), noCPUs},
		{"exclusive CPUs would become shared", static(2), one("2", "1Gi"), one("1500m", "1Gi"), noCPUs},
		{"shared before and after", onlyCPUs, one("500m", "1Gi"), one("1500m", "2Gi"), ""},
		{"memory on NUMA nodes", static(2), one("500m", "1Gi"), one("500m", "2Gi"), noMemory},
		{"memory from anywhere", onlyCPUs, one("2", "1Gi"), one("2", "2Gi"), ""},
		{"not guaranteed", static(2), burst, burst, ""},
		{"pod-level", aligned(topology.Restricted, topology.ScopePod), bubble("2"), bubble("3"), noCPUs},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.node.ResizeConflict(tt.was, tt.want); got != tt.fixed {
				t.Errorf("got %q, want %q", got, tt.fixed)
			}
		})
	}
}

// A ledger saved on one machine is loaded on another. Allocations that fit stay, and no state prevents the agent from
// starting.
func TestLoadDropsWhatDoesNotFit(t *testing.T) {
	kept := Held{
		"a": {Containers: map[string]Holding{"app": {CPUs: cpuset.New(2, 3), Memory: mem(4, 1),
			Devices: map[corev1.ResourceName][]device.ID{gpu: {"x"}}}}},
		"b": {Containers: map[string]Holding{"app": {CPUs: cpuset.New(6, 7), Memory: mem(4, 3)}}},
	}
	devices := Held{"a": {Containers: map[string]Holding{"app": {Devices: kept["a"].Containers["app"].Devices}}}}
	with := func(change func(*Node)) Node {
		n := static(4)
		change(&n)
		return n
	}
	tests := []struct {
		name string
		node Node
		want Held
		lost []types.UID
	}{
		{"the same machine", static(4), kept, nil},
		{"fewer CPUs and nodes", static(2), Held{"a": kept["a"]}, []types.UID{"b"}},
		{"no policy", Node{Machine: wide(4)}, devices, []types.UID{"a", "b"}},
		{
			"another CPU is reserved", with(func(n *Node) { n.Policy.ReservedCPUs = cpuset.New(7) }),
			Held{"a": kept["a"], "b": {Containers: map[string]Holding{"app": {Memory: mem(4, 3)}}}}, []types.UID{"b"},
		},
		{
			"less memory", with(func(n *Node) { n.Machine.Nodes[1].Memory = 1 << 30 }),
			Held{
				"a": {Containers: map[string]Holding{"app": {CPUs: cpuset.New(2, 3),
					Devices: kept["a"].Containers["app"].Devices}}}, "b": kept["b"]}, []types.UID{"a"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			l := newLedger(dir, static(4))
			for uid, a := range kept {
				if err := l.Commit(uid, a); err != nil {
					t.Fatal(err)
				}
			}
			l = newLedger(dir, tt.node)
			lost, err := l.Load()
			if err != nil {
				t.Error(err)
			}
			var names []types.UID
			for _, x := range lost {
				names = append(names, x.UID)
			}
			slices.Sort(names)
			if diff := cmp.Diff(tt.lost, names); diff != "" {
				t.Errorf("lost (-want +got):\n%s", diff)
			}
			again := newLedger(dir, tt.node)
			if lost, err := again.Load(); len(lost) > 0 || err != nil {
				t.Errorf("a second load still loses something: %v, %v", lost, err)
			}
			for _, l := range []*Ledger{l, again} {
				if diff := cmp.Diff(tt.want, l.All(), sameSets); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// Two pods seem to hold the same CPU. The pod that the ledger knows keeps it.
func TestRebuildKeepsKnownHolders(t *testing.T) {
	l := newLedger(t.TempDir(), static(4))
	if err := l.Commit("a", cpus(2)); err != nil {
		t.Fatal(err)
	}
	lost, err := l.Rebuild(map[types.UID]Allocation{"a": cpus(5), "b": cpus(2), "c": cpus(3), "d": cpus(3)})
	if err != nil || len(lost) != 2 || lost[0].UID != "b" || lost[1].UID != "d" {
		t.Errorf("lost %v, error %v", lost, err)
	}
	if diff := cmp.Diff(Held{"a": cpus(2), "c": cpus(3)}, l.All(), sameSets); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add("0-1", 1, int64(1))
	f.Add("0-4294967295", 64, int64(-1))
	f.Fuzz(func(t *testing.T, list string, node int, size int64) {
		r := record{Containers: map[string]share{"c": {CPUs: list,
			Memory: []block{{Nodes: []int{node}, Resource: "memory", Size: size}}}}}
		a, err := r.allocation()
		if err != nil {
			return
		}
		if again, err := recordOf(a).allocation(); err != nil || cmp.Diff(a, again, sameSets) != "" {
			t.Errorf("read %v, written and read again %v: %v", a, again, err)
		}
	})
}

// With PodLevelResourceManagers: false a pod with pod-level resources holds nothing exclusively, so that a resize of it
// conflicts with nothing. Other pods get their CPUs.
func TestPodsWithPodLevelResourcesHoldNothing(t *testing.T) {
	n := aligned(topology.Restricted, topology.ScopePod)
	n.Policy.NoPodLevel = true
	bubble := func(cpu string) *corev1.Pod {
		return whole(newPod("p", nil, sized("app", "cpu", cpu, "memory", "1Gi")), "cpu", cpu, "memory", "1Gi")
	}
	if got, err := Decide(n, nil, bubble("2")); err != nil || !got.IsEmpty() {
		t.Errorf("it gets %+v, %v", got, err)
	}
	if got := n.ResizeConflict(bubble("2"), bubble("3")); got != "" {
		t.Errorf("a resize conflicts: %s", got)
	}
	plain := newPod("q", nil, sized("app", "cpu", "2", "memory", "1Gi"))
	if got, err := Decide(n, nil, plain); err != nil || got.Containers["app"].CPUs.Size() != 2 {
		t.Errorf("another pod gets %+v, %v", got, err)
	}
}
