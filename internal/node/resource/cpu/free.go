package cpu

import "slices"

// free is the set of CPUs that may be taken. It counts and sorts them by the groups of the machine.
type free struct {
	*layout
	isFree []bool       // by CPU
	count  [kinds][]int // by kind and group: the number of free CPUs
	total  int
}

// newFree returns the set of the CPUs that are marked in available.
func newFree(l *layout, available []bool) *free {
	f := &free{layout: l, isFree: make([]bool, len(l.cpus))}
	for k := range kinds {
		f.count[k] = make([]int, len(l.groups[k]))
	}
	for cpu, free := range available {
		if free {
			f.add(cpu)
		}
	}
	return f
}

func (f *free) add(cpu int) {
	f.isFree[cpu] = true
	f.total++
	for k := range kinds {
		f.count[k][f.of[k][cpu]]++
	}
}

func (f *free) remove(cpus []int) {
	for _, cpu := range cpus {
		f.isFree[cpu] = false
		for k := range kinds {
			f.count[k][f.of[k][cpu]]--
		}
	}
	f.total -= len(cpus)
}

// whole reports whether all CPUs of a group are free.
func (f *free) whole(k kind, g int) bool { return f.count[k][g] == len(f.groups[k][g].cpus) }

// sorted returns the groups that have free CPUs. The order is by free CPUs, fewest first, then by ID, within the next
// larger kind: sockets within NUMA nodes or the reverse, caches within NUMA nodes, cores within the smaller of socket
// and NUMA node.
func (f *free) sorted(k kind) []int {
	first, second := socket, node
	if f.nodesFirst() {
		first, second = node, socket
	}
	switch k {
	case first:
		var all []int
		for g := range f.groups[k] {
			if f.count[k][g] > 0 {
				all = append(all, g)
			}
		}
		return f.byCount(k, all)
	case second:
		return f.sortedWithin(first, k)
	case cache:
		return f.sortedWithin(node, k)
	default:
		return f.sortedWithin(second, k)
	}
}

func (f *free) sortedWithin(outer, k kind) []int {
	var all []int
	for _, g := range f.sorted(outer) {
		all = append(all, f.byCount(k, f.within(outer, g, k))...)
	}
	return all
}

func (f *free) byCount(k kind, groups []int) []int {
	slices.SortFunc(groups, func(a, b int) int {
		if d := f.count[k][a] - f.count[k][b]; d != 0 {
			return d
		}
		return a - b
	})
	return groups
}

// within returns the groups of kind k that have a free CPU inside the outer group g.
func (f *free) within(outer kind, g int, k kind) []int {
	var inner []int
	seen := make([]bool, len(f.groups[k]))
	for _, cpu := range f.in(outer, g) {
		if in := f.of[k][cpu]; !seen[in] {
			seen[in] = true
			inner = append(inner, in)
		}
	}
	return inner
}

func (f *free) in(k kind, g int) []int {
	var cpus []int
	for _, cpu := range f.groups[k][g].cpus {
		if f.isFree[cpu] {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}
