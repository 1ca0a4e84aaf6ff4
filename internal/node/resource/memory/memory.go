package memory

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// Block is an amount of memory, or of huge pages of one size, on a set of NUMA nodes.
type Block struct {
	Nodes    topology.Nodes
	Resource corev1.ResourceName
	Size     int64 // bytes
}

// amounts are bytes by resource. Resources are memory and huge pages of each size.
type amounts map[corev1.ResourceName]int64

// Reserved is reservedMemory: bytes that containers do not get, by NUMA node and resource.
type Reserved map[int]map[corev1.ResourceName]int64

// Check returns an error if a reservation is impossible by the kubelet's rules. It must name existing nodes, reserve
// some memory, and reserve at most the memory of each node. The reserved memory of all nodes must add up to total: the
// bytes of kubeReserved, systemReserved and the hard eviction threshold together.
func (r Reserved) Check(m machine.Machine, total int64) error {
	sums := amounts{corev1.ResourceMemory: 0}
	for _, id := range slices.Sorted(maps.Keys(r)) {
		n, ok := m.Node(id)
		if !ok {
			return fmt.Errorf("reservedMemory: the machine has no NUMA node %d", id)
		}
		for name, size := range r[id] {
			sums[name] += size
			if available := capacity(n)[name]; size > available {
				return fmt.Errorf("reservedMemory: NUMA node %d has %s of %s, less than the %s that are reserved", id,
					text(available), name, text(size))
			}
		}
	}
	if sums[corev1.ResourceMemory] == 0 {
		return fmt.Errorf("reservedMemory: memoryManagerPolicy Static needs some memory to be reserved: %s in all",
			text(total))
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		want := int64(0)
		if name == corev1.ResourceMemory {
			want = total
		}
		if sums[name] != want {
			return fmt.Errorf(
				"reservedMemory: %s of %s are reserved on all NUMA nodes together, and kubeReserved, systemReserved "+
					"and evictionHard take %s: make them equal", text(sums[name]), name, text(want))
		}
	}
	return nil
}

func text(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }

// capacity lists the memory and huge pages of a node. Memory in huge pages does not count as memory.
func capacity(n machine.Node) amounts {
	a := amounts{corev1.ResourceMemory: n.Memory}
	for size, count := range n.HugePages {
		a[hugePages(size)] += size * count
		a[corev1.ResourceMemory] -= size * count
	}
	return a
}

func hugePages(size int64) corev1.ResourceName {
	return corev1.ResourceName(corev1.ResourceHugePagesPrefix + text(size))
}

func isMemory(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// State describes the memory of the nodes and which part is held. It is a value: its methods return new states.
//
// Nodes that serve an allocation together are a group. A node is in at most one group. A node in a group of several
// nodes serves no allocation alone: otherwise the kernel could give memory that belongs to a container bound to one
// node to a container bound to the group.
type State struct {
	nodes []nodeSupply // by id
	// groups counts the amounts held on nodes that serve allocations, alone or together.
	groups map[topology.Nodes]amounts
}

type nodeSupply struct {
	id   int
	give amounts
}

// NewState returns the state of a machine whose memory is all free. Nodes with IDs above 63 are ignored.
func NewState(m machine.Machine, r Reserved) State {
	s := State{}
	for _, n := range m.Nodes {
		if n.ID > 63 {
			continue
		}
		give := capacity(n)
		for name, size := range r[n.ID] {
			give[name] = max(0, give[name]-size)
		}
		s.nodes = append(s.nodes, nodeSupply{n.ID, give})
	}
	return s
}

// Allocatable lists all memory that the nodes can give, held or not, with one block for each node and resource.
func (s State) Allocatable() []Block {
	var all []Block
	for _, n := range s.nodes {
		for _, name := range slices.Sorted(maps.Keys(n.give)) {
			if n.give[name] > 0 {
				all = append(all, Block{Nodes: topology.Of(n.id), Resource: name, Size: n.give[name]})
			}
		}
	}
	return all
}

// Free returns how much of a resource is free on a set of nodes. It returns false if the nodes cannot be a group.
func (s State) Free(nodes topology.Nodes, name corev1.ResourceName) (int64, bool) {
	if !s.together(nodes) {
		return 0, false
	}
	return s.give(nodes)[name] - s.groups[nodes][name], true
}

// give adds up the memory of a set of nodes for allocations, held or not.
func (s State) give(nodes topology.Nodes) amounts {
	sum := amounts{}
	for _, n := range s.nodes {
		if nodes.Has(n.id) {
			for name, size := range n.give {
				sum[name] += size
			}
		}
	}
	return sum
}

// together reports whether the nodes are a group or could become one.
func (s State) together(nodes topology.Nodes) bool {
	if _, exists := s.groups[nodes]; exists {
		return true
	}
	for group := range s.groups {
		if group&nodes != 0 {
			return false
		}
	}
	return true
}

// With returns the state with these blocks held too. It does not check the blocks, so that a state read from disk can
// be represented. Use Check to find out whether they fit.
func (s State) With(blocks []Block) State {
	if len(blocks) == 0 {
		return s
	}
	groups := make(map[topology.Nodes]amounts, len(s.groups)+1)
	for nodes, used := range s.groups {
		groups[nodes] = maps.Clone(used)
	}
	for _, b := range blocks {
		if groups[b.Nodes] == nil {
			groups[b.Nodes] = amounts{}
		}
		groups[b.Nodes][b.Resource] += b.Size
	}
	s.groups = groups
	return s
}

// Check returns an error if the blocks cannot be held.
func (s State) Check(blocks []Block) error {
	var known topology.Nodes
	for _, n := range s.nodes {
		known |= topology.Of(n.id)
	}
	for _, b := range blocks {
		if b.Nodes == 0 || b.Nodes&^known != 0 {
			return fmt.Errorf("%s of %s on NUMA nodes %v: the machine has nodes %v", text(b.Size), b.Resource,
				b.Nodes.IDs(), known.IDs())
		}
		free, ok := s.Free(b.Nodes, b.Resource)
		if !ok {
			return fmt.Errorf(
				"NUMA nodes %v cannot serve together: one of them serves others alone or with other nodes",
				b.Nodes.IDs())
		}
		if free < b.Size {
			return fmt.Errorf("NUMA nodes %v have %s of %s, less than %s", b.Nodes.IDs(), text(free), b.Resource,
				text(b.Size))
		}
		s = s.With([]Block{b})
	}
	return nil
}
