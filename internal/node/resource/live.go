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

// Place is where a container runs, as its cgroup says.
type Place struct {
	CPUs  cpuset.CPUSet
	Nodes topology.Nodes // that its memory comes from; 0: not known
}

// Found is what a pod holds, as can be told from where its containers run (by
// name) and from what they are due. A container that runs on as many CPUs as it is
// due has these for itself; one that runs on others has lost them, or never had
// any.
func (n Node) Found(p *corev1.Pod, live map[string]Place) Allocation {
	a := Allocation{Containers: map[string]Given{}}
	if n.bubbles(p) {
		a.Pod = n.foundWhole(p, live)
	}
	for _, c := range pod.Containers(p) {
		at, runs := live[c.Name]
		if !runs || c.Kind == pod.Ephemeral {
			continue
		}
		g := Given{}
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

// FoundUnknown is the same of a Guaranteed pod of which it is not known what it is
// due: CPUs that none of the shared ones are among. It is for one that ends.
func (n Node) FoundUnknown(live map[string]Place) Allocation {
	a := Allocation{Containers: map[string]Given{}}
	for name, at := range live {
		if n.Policy.CPUs && !at.CPUs.IsEmpty() && at.CPUs.IsSubsetOf(n.pool(nil).Free()) &&
			!n.pool(nil).Shared().IsSubsetOf(at.CPUs) {
			a.Containers[name] = Given{CPUs: at.CPUs}
		}
	}
	return a
}

func (n Node) foundWhole(p *corev1.Pod, live map[string]Place) (g Given) {
	cpus, nodes := cpuset.New(), topology.Nodes(0)
	for _, at := range live {
		cpus = cpus.Union(at.CPUs)
		nodes |= at.Nodes
	}
	if due := cpu.ExclusivePod(p); n.Policy.CPUs && due > 0 && cpus.Size() == due {
		g.CPUs = cpus
	}
	if n.Policy.Memory && n.bound(nodes) {
		g.Memory = blocks(memory.Whole(p), nodes)
	}
	return g
}

// bound says whether memory comes from these nodes because it was given there: what
// was not comes from all.
func (n Node) bound(nodes topology.Nodes) bool {
	return nodes != 0 && (nodes.Len() < len(n.Machine.Nodes) || len(n.Machine.Nodes) == 1)
}

func blocks(sizes map[corev1.ResourceName]int64, nodes topology.Nodes) (all []memory.Block) {
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		all = append(all, memory.Block{Nodes: nodes, Resource: name, Size: sizes[name]})
	}
	return all
}

// Fixed says why a running pod cannot have other resources, in the kubelet's
// words: what it is due for itself would change. "": it can.
func (n Node) Fixed(was, want *corev1.Pod) string {
	cpus := n.Policy.CPUs && n.bubbles(want) && cpu.ExclusivePod(was) != cpu.ExclusivePod(want)
	sizes := n.Policy.Memory && n.bubbles(want) && !maps.Equal(memory.Whole(was), memory.Whole(want))
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
