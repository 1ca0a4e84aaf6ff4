package cputest

import (
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/machine"
)

// Shape describes a machine with identical parts.
type Shape struct{ Sockets, NodesPerSocket, CachesPerNode, CoresPerCache, Threads int }

// Machine returns a machine of this shape. CPU IDs are numbered as Linux does on x86: the first threads of all cores,
// then the second threads.
func (s Shape) Machine() machine.Machine {
	var m machine.Machine
	nodes := s.Sockets * s.NodesPerSocket
	cores := nodes * s.CachesPerNode * s.CoresPerCache
	byNode := make([][]int, nodes)
	for id := range cores * s.Threads {
		core := id % cores
		cache := core / s.CoresPerCache
		node := cache / s.CachesPerNode
		m.CPUs = append(m.CPUs,
			machine.CPU{ID: id, Core: core, Socket: node / s.NodesPerSocket, Node: node,
				Cache: cache * s.CoresPerCache})
		byNode[node] = append(byNode[node], id)
	}
	for id, cpus := range byNode {
		m.Nodes = append(m.Nodes, machine.Node{ID: id, CPUs: cpuset.New(cpus...)})
	}
	return m
}

// Large returns a machine with 512 CPUs, two threads a core, on 1, 2, 4, 8 or 16 NUMA nodes with at most four nodes a
// socket.
func Large(nodes int) machine.Machine {
	perSocket := min(4, nodes)
	return Shape{Sockets: nodes / perSocket, NodesPerSocket: perSocket, CachesPerNode: 2, CoresPerCache: 128 / nodes,
		Threads: 2}.Machine()
}

// Used returns the CPUs of every third core of a Large machine, starting at core 2.
func Used() cpuset.CPUSet {
	var ids []int
	for core := 2; core < 256; core += 3 {
		ids = append(ids, core, core+256)
	}
	return cpuset.New(ids...)
}
