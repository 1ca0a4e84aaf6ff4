package resource

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource/cpu"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// Node describes the resources that can be allocated and the rules for it. It is a value; nil Devices mean that there
// are none.
type Node struct {
	Machine machine.Machine
	Policy  Policy
	Devices device.Inventory
}

// NUMANodes returns the machine's NUMA nodes.
func (n Node) NUMANodes() (all topology.Nodes) {
	for _, node := range n.Machine.Nodes {
		all |= topology.Of(node.ID)
	}
	return all
}

// Policy is the configuration of the allocators. The zero value pins nothing: only devices are allocated.
type Policy struct {
	// CPUs is true under cpuManagerPolicy static.
	CPUs bool
	// ReservedCPUs are never allocated exclusively. Containers without exclusive CPUs may run on them.
	ReservedCPUs cpuset.CPUSet
	CPU          cpu.Options
	// Memory is true under memoryManagerPolicy Static.
	Memory         bool
	ReservedMemory memory.Reserved
	Topology       topology.Options
	// NoPodLevel gives no CPUs and no memory exclusively to pods with pod-level resources (feature gate
	// PodLevelResourceManagers: false).
	NoPodLevel bool
}

// of returns the node as a pod finds it.
func (n Node) of(p *corev1.Pod) Node {
	if n.Policy.NoPodLevel && cpu.PodLevel(p) {
		n.Policy.CPUs, n.Policy.Memory = false, false
	}
	return n
}

// Holding lists the resources that one container, or a pod as a whole, holds exclusively.
type Holding struct {
	// CPUs are exclusive: no other container runs on them. Empty: the container runs on the shared CPUs.
	CPUs cpuset.CPUSet
	// Memory is reserved on NUMA nodes. Empty: memory may come from any node.
	Memory []memory.Block
	// Devices are device IDs by resource.
	Devices map[corev1.ResourceName][]device.ID
}

// IsEmpty reports whether nothing is held.
func (g Holding) IsEmpty() bool {
	return g.CPUs.IsEmpty() && len(g.Memory) == 0 && len(g.Devices) == 0
}

// Nodes are the NUMA nodes that the memory comes from. 0 means any.
func (g Holding) Nodes() (n topology.Nodes) {
	for _, b := range g.Memory {
		n |= b.Nodes
	}
	return n
}

// Allocation lists the resources that a pod and its containers hold.
type Allocation struct {
	// Containers is keyed by container name and includes init containers and sidecars. A container that holds nothing
	// has no entry.
	Containers map[string]Holding
	// Pod is held by the containers together (pod-level resources, KEP-5526). The exclusive CPUs of its containers are
	// part of Pod.CPUs. The other containers run on the rest of Pod.CPUs, which is never empty.
	Pod Holding
}

// IsEmpty reports whether the pod holds nothing.
func (a Allocation) IsEmpty() bool { return len(a.Containers) == 0 && a.Pod.IsEmpty() }

// CPUs are all CPUs that the pod or one of its containers holds exclusively.
func (a Allocation) CPUs() cpuset.CPUSet {
	all := a.Pod.CPUs
	for _, g := range a.Containers {
		all = all.Union(g.CPUs)
	}
	return all
}

// with adds the parts of other that a lacks. It reports whether any was added.
func (a Allocation) with(other Allocation) (Allocation, bool) {
	all := a.Clone()
	whole, more := a.Pod.with(other.Pod)
	all.Pod = whole
	for name, g := range other.Containers {
		both, changed := a.Containers[name].with(g)
		if !changed {
			continue
		}
		if all.Containers == nil {
			all.Containers = map[string]Holding{}
		}
		all.Containers[name], more = both, true
	}
	return all, more
}

func (g Holding) with(other Holding) (Holding, bool) {
	all, more := g.clone(), false
	if g.CPUs.IsEmpty() && !other.CPUs.IsEmpty() {
		all.CPUs, more = other.CPUs, true
	}
	if len(g.Memory) == 0 && len(other.Memory) > 0 {
		all.Memory, more = slices.Clone(other.Memory), true
	}
	for name, ids := range other.Devices {
		if len(g.Devices[name]) > 0 || len(ids) == 0 {
			continue
		}
		if all.Devices == nil {
			all.Devices = map[corev1.ResourceName][]device.ID{}
		}
		all.Devices[name], more = slices.Clone(ids), true
	}
	return all, more
}

// Memory is all memory that a pod holds. Its sum is the pod's usage of the NUMA nodes.
func (a Allocation) Memory() []memory.Block {
	if len(a.Pod.Memory) > 0 {
		return a.Pod.Memory
	}
	var all []memory.Block
	for _, name := range slices.Sorted(maps.Keys(a.Containers)) {
		all = append(all, a.Containers[name].Memory...)
	}
	return all
}

// Clone returns a deep copy.
func (a Allocation) Clone() Allocation {
	c := Allocation{Pod: a.Pod.clone()}
	if a.Containers != nil {
		c.Containers = make(map[string]Holding, len(a.Containers))
		for name, g := range a.Containers {
			c.Containers[name] = g.clone()
		}
	}
	return c
}

func (g Holding) clone() Holding {
	g.CPUs, g.Memory, g.Devices = g.CPUs.Clone(), slices.Clone(g.Memory), maps.Clone(g.Devices)
	for name, ids := range g.Devices {
		g.Devices[name] = slices.Clone(ids)
	}
	return g
}

// Held are the allocations of a node by pod UID. An Allocation in it is never modified.
type Held map[types.UID]Allocation

// CPUs are the CPUs that any pod holds exclusively.
func (h Held) CPUs() cpuset.CPUSet {
	all := cpuset.New()
	for _, a := range h {
		all = all.Union(a.CPUs())
	}
	return all
}

// Devices are the devices that any pod holds, by resource.
func (h Held) Devices() device.Held {
	all := device.Held{}
	for _, a := range h {
		for _, g := range a.Containers {
			for name, ids := range g.Devices {
				if all[name] == nil {
					all[name] = sets.New[device.ID]()
				}
				all[name].Insert(ids...)
			}
		}
	}
	return all
}
