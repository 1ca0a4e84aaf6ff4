package resource

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/machine/machinetest"
	"github.com/berth-run/berth/internal/node/resource/cpu"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

const gi = int64(1) << 30

// sized is a container whose requests equal its limits. amounts are pairs of resource name and quantity.
func sized(name string, amounts ...string) corev1.Container {
	list := corev1.ResourceList{}
	for i := 0; i < len(amounts); i += 2 {
		list[corev1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}
}

func sidecar(c corev1.Container) corev1.Container {
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}

func newPod(uid types.UID, init []corev1.Container, apps ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid},
		Spec: corev1.PodSpec{InitContainers: init, Containers: apps}}
}

// whole adds pod-level resources to a pod.
func whole(p *corev1.Pod, amounts ...string) *corev1.Pod {
	p.Spec.Resources = new(sized("", amounts...).Resources)
	return p
}

// claimed marks a resource of a container as served by a claim that the scheduler made.
func claimed(p *corev1.Pod, container string, name corev1.ResourceName) *corev1.Pod {
	p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: container,
			ResourceName: string(name)}},
	}
	return p
}

func mem(size int64, nodes ...int) []memory.Block {
	return []memory.Block{{Nodes: topology.Of(nodes...), Resource: corev1.ResourceMemory, Size: size * gi}}
}

// aligned is a node with four NUMA nodes of 2 CPUs, 8 GiB and one device each. CPU 0 is reserved.
func aligned(policy topology.Policy, scope string) Node {
	n := static(4)
	n.Policy.Topology = topology.Options{Policy: policy, Scope: scope}
	n.Devices = device.Inventory{}
	for i := range 4 {
		n.Devices[gpu] = append(n.Devices[gpu],
			device.Device{ID: fmt.Sprint("gpu", i), Healthy: true, Nodes: topology.Of(i)})
	}
	return n
}

func TestDecide(t *testing.T) {
	const size = "memory"
	tests := []struct {
		name string
		node Node
		held Held
		pod  *corev1.Pod
		want Allocation
	}{
		{name: "nothing is pinned", node: Node{Machine: wide(2)},
			pod: newPod("p", nil, sized("app", "cpu", "1", size, "1Gi"))},
		{
			name: "CPUs and memory", node: static(4),
			pod: newPod("p", nil, sized("app", "cpu", "2", size, "3Gi"), sized("part", "cpu", "1500m", size, "6Gi")),
			want: Allocation{Containers: map[string]Holding{"app": {CPUs: cpuset.New(2, 3), Memory: mem(3, 0)},
				"part": {Memory: mem(6, 1)}}},
		},
		{name: "a burstable pod gets nothing", node: static(4),
			pod: newPod("p", nil, sized("app", "cpu", "2", size, "3Gi"), corev1.Container{Name: "b"})},
		{
			name: "later containers reuse those of init containers, not of sidecars", node: static(4),
			pod: newPod("p",
				[]corev1.Container{sized("first", "cpu", "4", size, "4Gi"),
					sidecar(sized("side", "cpu", "1", size, "1Gi")), sized("second", "cpu", "2", size, "5Gi")},
				sized("app", "cpu", "3", size, "6Gi")),
			want: Allocation{Containers: map[string]Holding{
				"first":  {CPUs: cpuset.New(2, 3, 4, 5), Memory: mem(0, 0)},
				"side":   {CPUs: cpuset.New(1), Memory: mem(1, 0)},
				"second": {CPUs: cpuset.New(2, 3), Memory: mem(0, 0)},
				"app":    {CPUs: cpuset.New(2, 3, 4), Memory: mem(6, 0)},
			}},
		},
		{
			name: "what others hold is left out", node: aligned(topology.SingleNUMANode, topology.ScopeContainer),
			held: Held{"o": cpus(2, 3)},
			pod:  newPod("p", nil, sized("app", "cpu", "2", size, "1Gi")),
			want: Allocation{Containers: map[string]Holding{"app": {CPUs: cpuset.New(4, 5), Memory: mem(1, 2)}}},
		},
		{
			name: "a whole node", node: aligned(topology.SingleNUMANode, topology.ScopeContainer),
			held: Held{
				"o": {
					Containers: map[string]Holding{
						"x": {Devices: map[corev1.ResourceName][]device.ID{gpu: {"gpu1"}}}}}},
			pod: newPod("p", nil, sized("app", "cpu", "2", size, "1Gi", string(gpu), "1")),
			want: Allocation{Containers: map[string]Holding{"app": {CPUs: cpuset.New(4, 5), Memory: mem(1, 2),
				Devices: map[corev1.ResourceName][]device.ID{gpu: {"gpu2"}}}}},
		},
		{
			name: "the pod on one node", node: aligned(topology.SingleNUMANode, topology.ScopePod),
			pod: newPod("p", nil, sized("a", "cpu", "1", size, "3Gi"), sized("b", "cpu", "1", size, "4Gi")),
			want: Allocation{Containers: map[string]Holding{"a": {CPUs: cpuset.New(2), Memory: mem(3, 1)},
				"b": {CPUs: cpuset.New(3), Memory: mem(4, 1)}}},
		},
		{
			name: "claimed devices are the driver's", node: Node{Machine: wide(4), Devices: aligned("", "").Devices},
			pod: claimed(newPod("p", nil, sized("app", string(gpu), "2")), "app", gpu),
		},
		{
			name: "devices without policies", node: Node{Machine: wide(4), Devices: aligned("", "").Devices},
			pod: newPod("p", nil, corev1.Container{Name: "app", Resources: sized("", string(gpu), "2").Resources}),
			want: Allocation{
				Containers: map[string]Holding{
					"app": {Devices: map[corev1.ResourceName][]device.ID{gpu: {"gpu0", "gpu1"}}}}},
		},
		{
			name: "a bubble", node: aligned(topology.Restricted, topology.ScopePod),
			pod: whole(newPod("p", []corev1.Container{{Name: "init"}}, sized("own", "cpu", "2", size, "2Gi"),
				corev1.Container{Name: "rest"}), "cpu", "4", size, "10Gi"),
			want: Allocation{
				Containers: map[string]Holding{"init": {CPUs: cpuset.New(2, 3, 4, 5)}, "own": {CPUs: cpuset.New(2, 3)}},
				Pod:        Holding{CPUs: cpuset.New(2, 3, 4, 5), Memory: mem(10, 1, 2)},
			},
		},
		{
			name: "pod-level resources without a bubble", node: static(4),
			pod: whole(newPod("p", nil, sized("own", "cpu", "2", size, "2Gi"), corev1.Container{Name: "rest"}), "cpu",
				"4", size, "10Gi"),
			want: Allocation{Containers: map[string]Holding{"own": {CPUs: cpuset.New(2, 3), Memory: mem(2, 0)}}},
		},
		{
			name: "a pod keeps what it holds", node: aligned(topology.SingleNUMANode, topology.ScopeContainer),
			held: Held{"p": {Containers: map[string]Holding{"app": {CPUs: cpuset.New(3, 5), Memory: mem(1, 3)}}}},
			pod: newPod("p", []corev1.Container{sized("ended", "cpu", "1", size, "1Gi")},
				sized("app", "cpu", "2", size, "1Gi")),
			want: Allocation{Containers: map[string]Holding{"ended": {CPUs: cpuset.New(3)},
				"app": {CPUs: cpuset.New(3, 5), Memory: mem(1, 3)}}},
		},
		{
			name: "a running pod is not rejected for its ended init container",
			node: aligned(topology.SingleNUMANode, topology.ScopeContainer),
			held: Held{"p": {Containers: map[string]Holding{"app": {CPUs: cpuset.New(3, 5), Memory: mem(1, 3)}}}},
			pod: newPod("p", []corev1.Container{sized("ended", "cpu", "9", size, "1Gi")},
				sized("app", "cpu", "2", size, "1Gi")),
			want: Allocation{Containers: map[string]Holding{"app": {CPUs: cpuset.New(3, 5), Memory: mem(1, 3)}}},
		},
		{
			name: "what a later container reuses is not reused twice", node: static(4),
			held: Held{"p": {Containers: map[string]Holding{"ended": {CPUs: cpuset.New(2, 3)},
				"app": {CPUs: cpuset.New(2, 3), Memory: mem(1, 0)}}}},
			pod: newPod("p", []corev1.Container{sized("ended", "cpu", "2", size, "1Gi")},
				sized("more", "cpu", "2", size, "1Gi"), sized("app", "cpu", "2", size, "1Gi")),
			want: Allocation{Containers: map[string]Holding{"ended": {CPUs: cpuset.New(2, 3)},
				"more": {CPUs: cpuset.New(4, 5), Memory: mem(1, 0)},
				"app":  {CPUs: cpuset.New(2, 3), Memory: mem(1, 0)}}},
		},
		{
			name: "a pod gets what it lacks", node: aligned(topology.SingleNUMANode, topology.ScopeContainer),
			held: Held{"p": cpus(3, 5)},
			pod:  newPod("p", nil, sized("app", "cpu", "2", size, "1Gi"), sized("more", "cpu", "2", size, "1Gi")),
			want: Allocation{Containers: map[string]Holding{"app": {CPUs: cpuset.New(3, 5), Memory: mem(1, 0)},
				"more": {CPUs: cpuset.New(6, 7), Memory: mem(1, 3)}}},
		},
		{
			name: "an amount of another size is replaced", node: static(4), held: Held{"p": cpus(3)},
			pod:  newPod("p", nil, sized("app", "cpu", "2", size, "1Gi")),
			want: Allocation{Containers: map[string]Holding{"app": {CPUs: cpuset.New(2, 3), Memory: mem(1, 0)}}},
		},
		{
			name: "devices stay held while their plugin is missing", node: Node{Machine: wide(1)},
			held: Held{
				"p": {
					Containers: map[string]Holding{"app": {Devices: map[corev1.ResourceName][]device.ID{gpu: {"x"}}}}}},
			pod: newPod("p", nil, corev1.Container{Name: "app", Resources: sized("", string(gpu), "1").Resources}),
			want: Allocation{
				Containers: map[string]Holding{"app": {Devices: map[corev1.ResourceName][]device.ID{gpu: {"x"}}}}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Decide(tt.node, tt.held, tt.pod)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want.Containers == nil && len(got.Containers) == 0 {
				got.Containers = nil
			}
			if diff := cmp.Diff(tt.want, got, sameSets); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecideRejects(t *testing.T) {
	smt := aligned(topology.None, "")
	for i := range smt.Machine.CPUs {
		smt.Machine.CPUs[i].Core = i / 2 * 2
	}
	smt.Policy.CPU = cpu.Options{FullPCPUsOnly: true}
	single := aligned(topology.SingleNUMANode, topology.ScopeContainer)
	onePod := aligned(topology.SingleNUMANode, topology.ScopePod)
	const noPlace = "Resources cannot be allocated with Topology locality"
	tests := []struct {
		name            string
		node            Node
		pod             *corev1.Pod
		reason, message string
	}{
		{"container on one node", single, newPod("p", nil, sized("app", "cpu", "3", "memory", "1Gi")),
			TopologyAffinityError, noPlace},
		{"pod on one node", onePod,
			newPod("p", nil, sized("a", "cpu", "2", "memory", "1Gi"), sized("b", "cpu", "1", "memory", "1Gi")),
			TopologyAffinityError, noPlace},
		{
			"pod-level on one node", onePod,
			whole(newPod("p", nil, sized("a", "cpu", "2", "memory", "1Gi")), "cpu", "3", "memory", "1Gi"),
			TopologyAffinityError,
			"Pod Scope pod with pod-level resources failed admission under pod-scope topology manager",
		},
		{
			"pod-level in containers", single,
			whole(newPod("p", nil, sized("a", "cpu", "3", "memory", "1Gi")), "cpu", "4", "memory", "1Gi"),
			TopologyAffinityError,
			"Pod Scope pod with pod-level resources failed admission with a container-level topology manager",
		},
		{
			"nothing left to share", onePod,
			whole(newPod("p", nil, sized("a", "cpu", "2", "memory", "1Gi"), corev1.Container{Name: "b"}), "cpu", "2",
				"memory", "2Gi"),
			"EmptyPodSharedPoolError",
			"pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for " +
				"shared containers",
		},
		{
			"no memory left to share", onePod,
			whole(newPod("p", nil, sized("a", "cpu", "1", "memory", "2Gi"), corev1.Container{Name: "b"}), "cpu", "2",
				"memory", "2Gi"),
			"EmptyPodSharedPoolError",
			"pod rejected, sum of exclusive container memory requests equals pod budget, leaving no memory for " +
				"shared containers",
		},
		{"half a core", smt, newPod("p", nil, sized("app", "cpu", "1", "memory", "1Gi")), "SMTAlignmentError",
			"SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"},
		{
			"too much memory", static(4), newPod("p", nil, sized("app", "cpu", "1", "memory", "33Gi")),
			"UnexpectedAdmissionError",
			"Allocate failed due to [memorymanager] failed to get the default NUMA affinity, no NUMA nodes with " +
				"enough memory is available, which is unexpected",
		},
		{
			"too many devices", aligned(topology.None, ""),
			newPod("p", nil, sized("app", "cpu", "1", "memory", "1Gi", string(gpu), "5")),
			"UnexpectedAdmissionError",
			"Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 5, " +
				"Available: 4, which is unexpected",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Decide(tt.node, nil, tt.pod)
			if diff := cmp.Diff([]string{tt.reason, tt.message},
				[]string{reason.Of(err), reason.Message(err)}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// mix returns a random pod.
func mix(r *rand.Rand, uid types.UID) *corev1.Pod {
	container := func(name string) corev1.Container {
		amounts := []string{"cpu", []string{"1", "2", "3", "4", "1500m"}[r.IntN(5)], "memory",
			fmt.Sprintf("%dMi", 64+r.IntN(4096))}
		if r.IntN(4) == 0 {
			amounts = append(amounts, string(gpu), fmt.Sprint(1+r.IntN(2)))
		}
		return sized(name, amounts...)
	}
	p := newPod(uid, nil)
	for i := range r.IntN(4) {
		c := container(fmt.Sprint("init", i))
		if r.IntN(2) == 0 {
			c = sidecar(c)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	for i := range 1 + r.IntN(3) {
		p.Spec.Containers = append(p.Spec.Containers, container(fmt.Sprint("app", i)))
	}
	if r.IntN(6) == 0 {
		whole(p, "cpu", fmt.Sprint(2+r.IntN(8)), "memory", fmt.Sprintf("%dMi", 4096+r.IntN(8192)))
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "rest"})
	}
	return p
}

// node returns a node with random policies and one device on each NUMA node.
func node(r *rand.Rand, m machine.Machine) Node {
	n := Node{Machine: m, Policy: Policy{
		CPUs: r.IntN(8) > 0, Memory: r.IntN(4) > 0, ReservedMemory: memory.Reserved{},
		CPU: []cpu.Options{{}, {FullPCPUsOnly: true}, {DistributeAcrossCores: true}, {DistributeAcrossNUMA: true},
			{PreferAlignByUncoreCache: true}, {StrictReservation: true}}[r.IntN(6)],
		Topology: topology.Options{
			Policy: []topology.Policy{topology.None, topology.BestEffort, topology.Restricted,
				topology.SingleNUMANode}[r.IntN(4)],
			Scope:    []string{topology.ScopeContainer, topology.ScopePod}[r.IntN(2)],
			MaxNodes: 16,
		},
	}, Devices: device.Inventory{}}
	n.Policy.ReservedCPUs = cpuset.New(m.CPUs[r.IntN(len(m.CPUs))].ID)
	for _, node := range m.Nodes {
		n.Policy.ReservedMemory[node.ID] = map[corev1.ResourceName]int64{corev1.ResourceMemory: node.Memory / 20}
		if node.ID < 64 {
			n.Devices[gpu] = append(n.Devices[gpu],
				device.Device{ID: fmt.Sprint("gpu", node.ID), Healthy: true, Nodes: topology.Of(node.ID)})
		}
	}
	if topology.Check(n.Policy.Topology, m.Nodes) != nil {
		n.Policy.Topology.Policy = topology.None
	}
	return n
}

// checkAllocation compares what a pod gets with what the node has, with the pod's requests and with what others hold.
func checkAllocation(t *testing.T, n Node, held Held, p *corev1.Pod, a Allocation) {
	t.Helper()
	if free := n.pool(held).Free(); !a.CPUs().IsSubsetOf(free) {
		t.Fatalf("CPUs %s are not free: %s", a.CPUs(), free)
	}
	if err := n.fitMemory(held, a.Memory()); err != nil {
		t.Fatal(err)
	}
	taken, staying := held.Devices(), map[string]string{}
	for _, c := range pod.Containers(p) {
		g := a.Containers[c.Name]
		if n.Policy.CPUs && a.Pod.CPUs.IsEmpty() && g.CPUs.Size() != cpu.Exclusive(p, c.Container) &&
			(pod.QOS(p) != corev1.PodQOSGuaranteed || !n.usesBubble(p)) {
			t.Fatalf("%s has CPUs %s and is due %d", c.Name, g.CPUs, cpu.Exclusive(p, c.Container))
		}
		if n.Policy.Memory && c.Kind != pod.Init && len(a.Pod.Memory) == 0 {
			var got int64
			for _, b := range g.Memory {
				got += b.Size
			}
			if want := memory.Exclusive(p, c.Container)[corev1.ResourceMemory]; got != want {
				t.Fatalf("%s has %d bytes and is due %d", c.Name, got, want)
			}
		}
		for name, ids := range g.Devices {
			if slices.ContainsFunc(ids, taken[name].Has) ||
				len(ids) != int(c.Resources.Limits.Name(name, resource.DecimalSI).Value()) {
				t.Fatalf("%s has devices %v; others have %v", c.Name, ids, taken)
			}
		}
		if c.Kind == pod.Init {
			continue
		}
		for _, id := range g.CPUs.List() {
			if other := staying[fmt.Sprint(id)]; other != "" {
				t.Fatalf("%s and %s share CPU %d", other, c.Name, id)
			}
			staying[fmt.Sprint(id)] = c.Name
		}
		for _, id := range g.Devices[gpu] {
			if other := staying[id]; other != "" {
				t.Fatalf("%s and %s share %s", other, c.Name, id)
			}
			staying[id] = c.Name
		}
	}
}

// Random pods come and go on every machine under every policy. They share nothing, reserved CPUs stay free, the same
// input gives the same answer, and a pod keeps what it holds.
func TestPodsShareNothing(t *testing.T) {
	for name, m := range machinetest.All(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(7, uint64(len(name))))
			for range 5 {
				n, held, pods := node(r, m), Held{}, map[types.UID]*corev1.Pod{}
				for i := range 30 {
					if uid := types.UID(fmt.Sprint(r.IntN(i + 1))); r.IntN(3) == 0 {
						delete(held, uid)
						delete(pods, uid)
						continue
					}
					p := mix(r, types.UID(fmt.Sprint(i)))
					a, err := Decide(n, held, p)
					if err != nil {
						if reason.Of(err) == "" {
							t.Fatalf("the error has no reason: %v", err)
						}
						continue
					}
					checkAllocation(t, n, held, p, a)
					if again, _ := Decide(n, held, p); cmp.Diff(a, again, sameSets) != "" {
						t.Fatalf("a second call gave another answer: %s", cmp.Diff(a, again, sameSets))
					}
					if a.IsEmpty() {
						continue
					}
					held[p.UID], pods[p.UID] = a, p
					for uid, p := range pods {
						kept, err := Decide(n, held, p)
						if diff := cmp.Diff(held[uid], kept, sameSets); diff != "" || err != nil {
							t.Fatalf("pod %s does not keep what it holds: %v\n%s", uid, err, diff)
						}
					}
				}
			}
		})
	}
}
