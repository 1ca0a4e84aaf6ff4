package machine

import (
	"slices"

	"k8s.io/utils/cpuset"
)

// Machine is one computer as the kernel shows it. A machine whose kernel knows
// no NUMA has one node, 0. It is a value: readers share it and never change it.
type Machine struct {
	CPUs []CPU // those online, by id
	// Offline CPUs are built in and switched off. They belong to nothing: the
	// kernel tells neither their core nor their node.
	Offline cpuset.CPUSet
	Nodes   []Node  // by id, also those without CPUs or without memory
	Caches  []Cache // those of the last level, by id; empty where no cache is shared by several cores
	Lower   []Cache // the other caches of data, by level and id; empty where the kernel tells of none
}

// CPU is one logical processor.
type CPU struct {
	ID int
	// Core is the least id of the online CPUs of its physical core.
	Core int
	// Socket is its physical package, by the firmware's number: not always
	// counted from 0 or without gaps.
	Socket int
	// Node is its NUMA node.
	Node int
	// Cache is the least id of the online CPUs that share its last-level cache.
	// Where no cache is shared by several cores, it is that of the CPUs with the
	// same socket and node, so that a group by cache is never less than the
	// machine can tell.
	Cache int
}

// Cache is one that holds data. It is of the last level if it is, of the caches that
// several cores share, the one of the highest level ("uncore cache" in the CPU
// manager's words).
type Cache struct {
	ID    int // the least id of its CPUs, as in CPU.Cache; unique in its level
	Level int
	Size  int64         // bytes, 0: not told
	CPUs  cpuset.CPUSet // online
}

// Node is a NUMA node.
type Node struct {
	// ID may have gaps, and may exceed 63 where accelerators show their memory
	// as nodes (POWER9 counts those down from 255).
	ID   int
	CPUs cpuset.CPUSet // online
	// Memory in bytes, huge pages included.
	Memory int64
	// HugePages is the number of pre-allocated pages by page size in bytes; a
	// size the kernel has no pages of is there with 0.
	HugePages map[int64]int64
	// Distances is by node id, as the firmware tells them (ACPI SLIT): 10 is
	// local, 20 takes twice as long. Empty: not told.
	Distances map[int]int
}

// Online are all CPUs.
func (m Machine) Online() cpuset.CPUSet {
	ids := make([]int, len(m.CPUs))
	for i, c := range m.CPUs {
		ids[i] = c.ID
	}
	return cpuset.New(ids...)
}

// CPU is the CPU of this id; false: it is not online.
func (m Machine) CPU(id int) (CPU, bool) {
	i, found := slices.BinarySearchFunc(m.CPUs, id, func(c CPU, id int) int { return c.ID - id })
	if !found {
		return CPU{}, false
	}
	return m.CPUs[i], true
}

// Node is the NUMA node of this id.
func (m Machine) Node(id int) (Node, bool) {
	i, found := slices.BinarySearchFunc(m.Nodes, id, func(n Node, id int) int { return n.ID - id })
	if !found {
		return Node{}, false
	}
	return m.Nodes[i], true
}

// ByCore are the CPUs of each core, by CPU.Core.
func (m Machine) ByCore() map[int]cpuset.CPUSet { return m.by(func(c CPU) int { return c.Core }) }

// ByCache are the CPUs of each last-level cache, by CPU.Cache.
func (m Machine) ByCache() map[int]cpuset.CPUSet { return m.by(func(c CPU) int { return c.Cache }) }

// BySocket are the CPUs of each socket, by CPU.Socket.
func (m Machine) BySocket() map[int]cpuset.CPUSet { return m.by(func(c CPU) int { return c.Socket }) }

// ByNode are the CPUs of each NUMA node that has any.
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

// ThreadsPerCore is the largest number of online CPUs that a core has; 1
// without SMT, 0 for a machine without CPUs.
func (m Machine) ThreadsPerCore() int {
	n := 0
	for _, threads := range m.ByCore() {
		n = max(n, threads.Size())
	}
	return n
}

// Memory of all nodes in bytes, huge pages included.
func (m Machine) Memory() int64 {
	var sum int64
	for _, n := range m.Nodes {
		sum += n.Memory
	}
	return sum
}

// HugePages is the number of pre-allocated pages of all nodes by page size in
// bytes.
func (m Machine) HugePages() map[int64]int64 {
	sum := map[int64]int64{}
	for _, n := range m.Nodes {
		for size, count := range n.HugePages {
			sum[size] += count
		}
	}
	return sum
}
