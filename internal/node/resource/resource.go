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

// Node is what there is to give away and by which rules. It is a value; nil
// Devices are no devices.
type Node struct {
	Machine machine.Machine
	Policy  Policy
	Devices device.Inventory
}

// Policy is what the configuration says. The zero value pins nothing: devices
// are chosen, and nothing else.
type Policy struct {
	// CPUs is cpuManagerPolicy static.
	CPUs bool
	// ReservedCPUs are never given exclusively. They belong to the CPUs that all
	// others share.
	ReservedCPUs cpuset.CPUSet
	CPU          cpu.Options
	// Memory is memoryManagerPolicy Static.
	Memory         bool
	ReservedMemory memory.Reserved
	Topology       topology.Options
}

// Given is what one container, or a pod as a whole, holds for itself.
type Given struct {
	// CPUs nobody else runs on. Empty: it runs on those that are shared.
	CPUs cpuset.CPUSet
	// Memory is by NUMA nodes. Empty: from anywhere.
	Memory []memory.Block
	// Devices are ids by resource.
	Devices map[corev1.ResourceName][]device.ID
}

// IsEmpty says that nothing is held.
func (g Given) IsEmpty() bool {
	return g.CPUs.IsEmpty() && len(g.Memory) == 0 && len(g.Devices) == 0
}

// Nodes are the NUMA nodes that memory comes from; 0: from anywhere.
func (g Given) Nodes() (n topology.Nodes) {
	for _, b := range g.Memory {
		n |= b.Nodes
	}
	return n
}

// Allocation is what a pod holds.
type Allocation struct {
	// Containers is by name, init containers and sidecars included; one that
	// holds nothing is left out.
	Containers map[string]Given
	// Pod is held by the containers together (pod-level resources, KEP-5526): what
	// containers hold of CPUs is part of it, and a container that holds none runs
	// on those that the others leave, of which there is always one.
	Pod Given
}

// IsEmpty says that the pod holds nothing.
func (a Allocation) IsEmpty() bool { return len(a.Containers) == 0 && a.Pod.IsEmpty() }

// CPUs are all CPUs of its own that a pod holds.
func (a Allocation) CPUs() cpuset.CPUSet {
	all := a.Pod.CPUs
	for _, g := range a.Containers {
		all = all.Union(g.CPUs)
	}
	return all
}

// with adds the parts that an allocation lacks; false: it lacks none.
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
			all.Containers = map[string]Given{}
		}
		all.Containers[name], more = both, true
	}
	return all, more
}

func (g Given) with(other Given) (Given, bool) {
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

// Memory is all memory that a pod holds; in sum it is what the pod takes.
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

// Clone is a copy that shares nothing.
func (a Allocation) Clone() Allocation {
	c := Allocation{Pod: a.Pod.clone()}
	if a.Containers != nil {
		c.Containers = make(map[string]Given, len(a.Containers))
		for name, g := range a.Containers {
			c.Containers[name] = g.clone()
		}
	}
	return c
}

func (g Given) clone() Given {
	g.CPUs, g.Memory, g.Devices = g.CPUs.Clone(), slices.Clone(g.Memory), maps.Clone(g.Devices)
	for name, ids := range g.Devices {
		g.Devices[name] = slices.Clone(ids)
	}
	return g
}

// Held are the allocations of a node by pod. An Allocation in it is never
// changed.
type Held map[types.UID]Allocation

// CPUs are those that are held exclusively.
func (h Held) CPUs() cpuset.CPUSet {
	all := cpuset.New()
	for _, a := range h {
		all = all.Union(a.CPUs())
	}
	return all
}

// Devices are those that are held, by resource.
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
