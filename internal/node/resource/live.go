package resource

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource/cpu"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// Place is where a container runs, read from its cgroup.
type Place struct {
	CPUs  cpuset.CPUSet
	Nodes topology.Nodes // where its memory comes from; 0: unknown
}

// Infer derives the allocation of a pod from the places where its containers run (keyed by name) and the resources that
// they are due. A container that runs on exactly as many CPUs as it is due holds them exclusively. A container that
// runs on another number of CPUs has lost its CPUs or never had any.
func (n Node) Infer(p *corev1.Pod, live map[string]Place) Allocation {
	a := Allocation{Containers: map[string]Holding{}}
	n = n.of(p)
	if n.usesBubble(p) {
		a.Pod = n.inferPod(p, live)
	}
	for _, c := range pod.Containers(p) {
		at, runs := live[c.Name]
		if !runs || c.Kind == pod.Ephemeral {
			continue
		}
		g := Holding{}
		if due := cpu.Exclusive(p, c.Container); n.Policy.CPUs && due > 0 && at.CPUs.Size() == due {
			g.CPUs = at.CPUs
		}
		if n.Policy.Memory && n.bound(at.Nodes) && len(a.Pod.Memory) == 0 {
			g.Memory = blocks(memory.Exclusive(p, c.Container), at.Nodes)
		}
		if !g.IsEmpty() {
			a.Containers[c.Name] = g
		}
	}
	return a
}

// InferUnknown does the same for a Guaranteed pod whose spec is not known because the pod is ending. It counts CPUs
// that may be allocated and do not include all shared CPUs.
func (n Node) InferUnknown(live map[string]Place) Allocation {
	a := Allocation{Containers: map[string]Holding{}}
	for name, at := range live {
		if n.Policy.CPUs && !at.CPUs.IsEmpty() && at.CPUs.IsSubsetOf(n.pool(nil).Free()) &&
			!n.pool(nil).Shared().IsSubsetOf(at.CPUs) {
			a.Containers[name] = Holding{CPUs: at.CPUs}
		}
	}
	return a
}

func (n Node) inferPod(p *corev1.Pod, live map[string]Place) (g Holding) {
	cpus, nodes := cpuset.New(), topology.Nodes(0)
	for _, at := range live {
		cpus = cpus.Union(at.CPUs)
		nodes |= at.Nodes
	}
	if due := cpu.ExclusivePod(p); n.Policy.CPUs && due > 0 && cpus.Size() == due {
		g.CPUs = cpus
	}
	if n.Policy.Memory && n.bound(nodes) {
		g.Memory = blocks(memory.ExclusivePod(p), nodes)
	}
	return g
}

// bound reports whether memory was bound to these nodes. A container without a binding uses all nodes of the machine.
func (n Node) bound(nodes topology.Nodes) bool {
	return nodes != 0 && (nodes.Len() < len(n.Machine.Nodes) || len(n.Machine.Nodes) == 1)
}

func blocks(sizes map[corev1.ResourceName]int64, nodes topology.Nodes) (all []memory.Block) {
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		all = append(all, memory.Block{Nodes: nodes, Resource: name, Size: sizes[name]})
	}
	return all
}

// ResizeConflict returns the kubelet's message if a running pod cannot be resized from was to want because its
// exclusive resources would change. It returns "" if the pod can be resized.
func (n Node) ResizeConflict(was, want *corev1.Pod) string {
	n = n.of(want)
	cpus := n.Policy.CPUs && n.usesBubble(want) && cpu.ExclusivePod(was) != cpu.ExclusivePod(want)
	sizes := n.Policy.Memory && n.usesBubble(want) && !maps.Equal(memory.ExclusivePod(was), memory.ExclusivePod(want))
	for _, c := range pod.Containers(want) {
		before, ok := pod.FindContainer(was, c.Name)
		if !ok || c.Kind == pod.Ephemeral {
			continue
		}
		cpus = cpus || n.Policy.CPUs && cpu.Exclusive(was, before.Container) != cpu.Exclusive(want, c.Container)
		sizes = sizes ||
			n.Policy.Memory && !maps.Equal(memory.Exclusive(was, before.Container), memory.Exclusive(want, c.Container))
	}
	switch {
	case cpus:
		return `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`
	case sizes:
		return `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`
	}
	return ""
}
