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

// Block is an amount of memory, or of huge pages of one size, of some nodes
// together.
type Block struct {
	Nodes    topology.Nodes
	Resource corev1.ResourceName
	Size     int64 // bytes
}

// amounts are bytes by resource: memory, and huge pages of each size.
type amounts map[corev1.ResourceName]int64

// Reserved is reservedMemory: what containers are not given, in bytes, by NUMA
// node and resource.
type Reserved map[int]map[corev1.ResourceName]int64

// Check says why a reservation cannot be made: it names a node that is not there
// or more than one has, nothing of the memory, or in sum another amount than the
// node's allocatable memory is short of (total: kubeReserved, systemReserved and
// the hard eviction threshold, in bytes), which is the kubelet's rule.
func (r Reserved) Check(m machine.Machine, total int64) error {
	sums := amounts{corev1.ResourceMemory: 0}
	for _, id := range slices.Sorted(maps.Keys(r)) {
		n, ok := m.Node(id)
		if !ok {
			return fmt.Errorf("reservedMemory: the machine has no NUMA node %d", id)
		}
		for name, size := range r[id] {
			sums[name] += size
			if has := capacity(n)[name]; size > has {
				return fmt.Errorf("reservedMemory: NUMA node %d has %s of %s, less than the %s that are reserved", id,
					text(has), name, text(size))
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

// capacity is what a node has; what lies in huge pages is no memory.
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

// State is what the nodes have to give and what is taken of it. It is a value:
// nothing changes one.
//
// Nodes that serve an allocation together are a group. A node is in one group at
// most, and while it is in one of several nodes it serves nothing alone: the
// kernel would take memory of a container that is bound to one node from another
// container's.
type State struct {
	nodes []supply // by id
	// groups are the nodes that serve something, alone or together.
	groups map[topology.Nodes]amounts
}

type supply struct {
	id   int
	give amounts
}

// NewState is a machine of which nothing is taken. Nodes with ids above 63 give
// nothing.
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
		s.nodes = append(s.nodes, supply{n.ID, give})
	}
	return s
}

// Allocatable is what the nodes have to give in all, taken or not: a block for
// each node and resource.
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

// Free is what is left of a resource on nodes that are a group or could be one;
// false: they are not and cannot.
func (s State) Free(nodes topology.Nodes, name corev1.ResourceName) (int64, bool) {
	if !s.together(nodes) {
		return 0, false
	}
	return s.give(nodes)[name] - s.groups[nodes][name], true
}

// give is what some nodes have to give together.
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

// together says whether nodes are a group or could be one.
func (s State) together(nodes topology.Nodes) bool {
	if _, are := s.groups[nodes]; are {
		return true
	}
	for group := range s.groups {
		if group&nodes != 0 {
			return false
		}
	}
	return true
}

// With is the state in which these blocks are taken too. Blocks of others are
// taken in any case, so that a state that was read from disk can be looked at;
// Check says first whether they can be.
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

// Check says why blocks cannot be taken.
func (s State) Check(blocks []Block) error {
	var known topology.Nodes
	for _, n := range s.nodes {
		known |= topology.Of(n.id)
	}
	for _, b := range blocks {
		if b.Nodes == 0 || b.Nodes&^known != 0 {
			return fmt.Errorf("%s of %s are of NUMA nodes %v, of which the machine has %v", text(b.Size), b.Resource,
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
