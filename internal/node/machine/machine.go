package machine

import (
	"slices"

	"k8s.io/utils/cpuset"
)

// Machine is one computer as the kernel describes it. With a kernel without NUMA it has one node, 0. It is a value:
// readers share it and never modify it.
type Machine struct {
	CPUs []CPU // the online ones, by ID
	// Offline CPUs exist but are switched off. The kernel reports neither their core nor their node.
	Offline cpuset.CPUSet
	Nodes   []Node  // by ID, including nodes without CPUs or memory
	Caches  []Cache // last-level caches by ID; empty if no cache is shared by several cores
	Lower   []Cache // other data caches by level and ID; empty if the kernel reports none
}

// CPU is one logical processor.
type CPU struct {
	ID int
	// Core is the lowest ID of the online CPUs of its physical core.
	Core int
	// Socket is the firmware's number of its physical package. Numbers may have gaps and may not start at 0.
	Socket int
	// Node is the ID of its NUMA node.
	Node int
	// Cache is the lowest ID of the online CPUs that share its last-level cache. If it has no such cache, it is the
	// lowest ID of the CPUs without one on the same socket and node.
	Cache int
}

// Cache is a cache that holds data. Several cores share a last-level cache, and no cache of a higher level is shared
// (the CPU manager's "uncore cache").
type Cache struct {
	ID    int // lowest ID of its CPUs, as in CPU.Cache; unique in its level
	Level int
	Size  int64         // bytes; 0: unknown
	CPUs  cpuset.CPUSet // the online ones
}

// Node is a NUMA node.
type Node struct {
	// ID may have gaps. It may exceed 63 if accelerators show their memory as nodes (POWER9 counts those down from
	// 255).
	ID   int
	CPUs cpuset.CPUSet // the online ones
	// Memory in bytes, huge pages included.
	Memory int64
	// HugePages is the number of pre-allocated pages by page size in bytes. It includes sizes without pages.
	HugePages map[int64]int64
	// Distances are by node ID, as the firmware reports them (ACPI SLIT). 10 is local; 20 takes twice as long. Empty:
	// unknown.
	Distances map[int]int
}

// Online returns the IDs of all CPUs.
func (m Machine) Online() cpuset.CPUSet {
	ids := make([]int, len(m.CPUs))
	for i, c := range m.CPUs {
		ids[i] = c.ID
	}
	return cpuset.New(ids...)
}

// CPU returns the CPU with this ID, and false if it is not online.
func (m Machine) CPU(id int) (CPU, bool) {
	i, found := slices.BinarySearchFunc(m.CPUs, id, func(c CPU, id int) int { return c.ID - id })
	if !found {
		return CPU{}, false
	}
	return m.CPUs[i], true
}

// Node returns the NUMA node with this ID, and false if there is none.
func (m Machine) Node(id int) (Node, bool) {
	i, found := slices.BinarySearchFunc(m.Nodes, id, func(n Node, id int) int { return n.ID - id })
	if !found {
		return Node{}, false
	}
	return m.Nodes[i], true
}

// ByCore returns the CPUs of each core, keyed by CPU.Core.
func (m Machine) ByCore() map[int]cpuset.CPUSet { return m.by(func(c CPU) int { return c.Core }) }

// ByCache returns the CPUs of each last-level cache, keyed by CPU.Cache.
func (m Machine) ByCache() map[int]cpuset.CPUSet { return m.by(func(c CPU) int { return c.Cache }) }

// BySocket returns the CPUs of each socket, keyed by CPU.Socket.
func (m Machine) BySocket() map[int]cpuset.CPUSet { return m.by(func(c CPU) int { return c.Socket }) }

// ByNode returns the CPUs of each NUMA node that has any.
func (m Machine) ByNode() map[int]cpuset.CPUSet { return m.by(func(c CPU) int { return c.Node }) }

func (m Machine) by(key func(CPU) int) map[int]cpuset.CPUSet {
	ids := map[int][]int{}
	for _, c := range m.CPUs {
		ids[key(c)] = append(ids[key(c)], c.ID)
	}
	sets := make(map[int]cpuset.CPUSet, len(ids))
	for k, v := range ids {
		sets[k] = cpuset.New(v...)
	}
	return sets
}

// ThreadsPerCore is the largest number of online CPUs in a core: 1 without SMT, 0 without CPUs.
func (m Machine) ThreadsPerCore() int {
	n := 0
	for _, threads := range m.ByCore() {
		n = max(n, threads.Size())
	}
	return n
}

// Memory is the memory of all nodes in bytes, huge pages included.
func (m Machine) Memory() int64 {
	var sum int64
	for _, n := range m.Nodes {
		sum += n.Memory
	}
	return sum
}

// HugePages returns the number of pre-allocated pages of all nodes by page size in bytes.
func (m Machine) HugePages() map[int64]int64 {
	sum := map[int64]int64{}
	for _, n := range m.Nodes {
		for size, count := range n.HugePages {
			sum[size] += count
		}
	}
	return sum
}
