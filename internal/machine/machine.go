package machine

import "k8s.io/utils/cpuset"

// Machine is one computer as the kernel shows it. A machine whose kernel knows
// no NUMA has one node, 0.
type Machine struct {
	CPUs    []CPU // those online, by id
	Offline cpuset.CPUSet
	Nodes   []Node // by id, also those without CPUs or without memory
}

// CPU is one logical processor.
type CPU struct {
	ID int
	// Core is the least id of the CPUs of its physical core, also of those offline.
	Core int
	// Socket is its physical package.
	Socket int
	// Node is its NUMA node.
	Node int
	// Cache is the least id of the CPUs that share its last-level cache.
	Cache int
}

// Node is a NUMA node.
type Node struct {
	ID   int
	CPUs cpuset.CPUSet // online
	// Memory in bytes, huge pages included.
	Memory int64
	// HugePages is the number of pre-allocated pages by page size in bytes.
	HugePages map[int64]int64
	// Distances is by node id, as the firmware tells them (ACPI SLIT): 10 is local.
	Distances map[int]int
}
