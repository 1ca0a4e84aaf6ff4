package cpu

import (
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/machine"
)

// kind is a level of the machine's topology.
type kind int

const (
	socket kind = iota
	node
	cache
	core
	kinds
)

// group is one socket, NUMA node, last-level cache or physical core.
type group struct {
	id   int
	cpus []int // indexes in layout.cpus, ascending
}

// layout indexes a machine. The identifier of a CPU is its index among the CPUs sorted by ID. The identifier of a group
// is its index among the groups of its kind sorted by ID.
type layout struct {
	cpus   []int // CPU IDs, ascending
	groups [kinds][]group
	of     [kinds][]int // by kind and CPU: the index of its group
	// perCore is the number of threads of a core. If cores differ, it is their greatest common divisor.
	perCore int
}

func newLayout(m machine.Machine) *layout {
	cpus := m.CPUs
	l := &layout{cpus: make([]int, len(cpus))}
	for i, c := range cpus {
		l.cpus[i] = c.ID
	}
	for k := range kinds {
		ids := make([]int, len(cpus))
		for i, c := range cpus {
			ids[i] = [kinds]int{c.Socket, c.Node, c.Cache, c.Core}[k]
		}
		l.groups[k], l.of[k] = groupBy(ids)
	}
	for _, g := range l.groups[core] {
		l.perCore = gcd(l.perCore, len(g.cpus))
	}
	return l
}

// groupBy groups the CPU indexes with equal IDs. It returns the groups and the group of each CPU.
func groupBy(ids []int) ([]group, []int) {
	distinct := slices.Clone(ids)
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	groups, of, sizes := make([]group, len(distinct)), make([]int, len(ids)), make([]int, len(distinct))
	for place, id := range ids {
		g, _ := slices.BinarySearch(distinct, id)
		of[place] = g
		sizes[g]++
	}
	all := make([]int, len(ids))
	for g, id := range distinct {
		groups[g] = group{id: id, cpus: all[:0:sizes[g]]}
		all = all[sizes[g]:]
	}
	for place, g := range of {
		groups[g].cpus = append(groups[g].cpus, place)
	}
	return groups, of
}

// places returns for each CPU index whether the CPU is in the set.
func (l *layout) places(cpus cpuset.CPUSet) []bool {
	in := make([]bool, len(l.cpus))
	if cpus.IsEmpty() {
		return in
	}
	for cpu, id := range l.cpus {
		in[cpu] = cpus.Contains(id)
	}
	return in
}

// set converts CPU indexes to a set of CPU IDs.
func (l *layout) set(cpus []int) cpuset.CPUSet {
	ids := make([]int, len(cpus))
	for i, cpu := range cpus {
		ids[i] = l.cpus[cpu]
	}
	return cpuset.New(ids...)
}

// available marks the CPUs that are free or reusable.
func (l *layout) available(p Pool, reusable cpuset.CPUSet) []bool {
	in := l.places(reusable)
	for cpu, id := range l.cpus {
		in[cpu] = in[cpu] || !p.Reserved.Contains(id) && !p.Held.Contains(id)
	}
	return in
}

// nodesFirst reports whether a NUMA node is at least as large as a socket.
func (l *layout) nodesFirst() bool { return len(l.groups[socket]) >= len(l.groups[node]) }

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
