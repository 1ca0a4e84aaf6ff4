package cpu

import (
	"slices"

	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/machine"
)

// kind is a way in which CPUs belong together.
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
	cpus []int // places in layout.cpus, ascending
}

// layout is a machine made ready to take from: a CPU is named by its place among
// the CPUs by id, a group by its place among those of its kind by id.
type layout struct {
	cpus   []int // ids, ascending
	groups [kinds][]group
	of     [kinds][]int // by CPU: its group
	// perCore is the number of threads of a core; where cores differ, of what all
	// cores are multiples of.
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

// groupBy makes groups of the places with the same id.
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

// places says of each CPU whether it is in the set.
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

// set undoes places.
func (l *layout) set(cpus []int) cpuset.CPUSet {
	ids := make([]int, len(cpus))
	for i, cpu := range cpus {
		ids[i] = l.cpus[cpu]
	}
	return cpuset.New(ids...)
}

// available are the CPUs that are free or reusable.
func (l *layout) available(p Pool, reusable cpuset.CPUSet) []bool {
	in := l.places(reusable)
	for cpu, id := range l.cpus {
		in[cpu] = in[cpu] || !p.Reserved.Contains(id) && !p.Held.Contains(id)
	}
	return in
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
