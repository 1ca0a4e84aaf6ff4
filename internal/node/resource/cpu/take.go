package cpu

import (
	"fmt"
	"slices"
)

// rules say how CPUs are chosen.
type rules struct {
	Options
	portion int // distribute CPUs in groups of this many
	nodes   int // distribute over this many NUMA nodes if so many have free CPUs; 0: over as few as possible
}

func (l *layout) rules(o Options) rules {
	if o.FullPCPUsOnly {
		return rules{Options: o, portion: l.perCore}
	}
	return rules{Options: o, portion: 1}
}

// split returns the rules without full-pcpus-only, so that a core may be divided. They apply inside a pod and to
// reserved CPUs.
func (r rules) split() rules {
	r.FullPCPUsOnly = false
	return r
}

// take chooses n of the available CPUs as the kubelet does: packed into as few parts of the machine as possible, or
// distributed over NUMA nodes.
func (l *layout) take(r rules, available []bool, n int) ([]int, error) {
	t := newTaker(l, r, available, n)
	if t.free.total < n {
		return nil, fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", n,
			t.free.total)
	}
	if r.DistributeAcrossNUMA && r.portion > 0 && n%r.portion == 0 {
		if t.distribute(); t.need == 0 {
			return t.chosen, nil
		}
		t = newTaker(l, r, available, n)
	}
	t.pack()
	if t.need > 0 {
		t = newTaker(l, r, available, n)
		t.takeCoresThatFit()
	}
	if t.need > 0 {
		return nil, fmt.Errorf("no whole physical cores of %d CPUs are free", n)
	}
	return t.chosen, nil
}

// taker takes free CPUs until it needs no others.
type taker struct {
	*layout
	rules
	free   *free
	need   int
	chosen []int // CPU indexes
}

func newTaker(l *layout, r rules, available []bool, need int) *taker {
	return &taker{layout: l, rules: r, free: newFree(l, available), need: need}
}

func (t *taker) take(cpus []int) {
	t.free.remove(cpus)
	t.chosen = append(t.chosen, cpus...)
	t.need -= len(cpus)
}

// pack takes whole parts of the machine, the largest first: sockets and NUMA nodes (the larger kind first), then
// caches, cores and single CPUs. Among parts of one kind it starts where the fewest CPUs are free.
func (t *taker) pack() {
	if t.nodesFirst() {
		t.takeWhole(node, t.free.sorted(node))
		t.takeWhole(socket, t.free.sorted(socket))
	} else {
		t.takeWhole(socket, t.free.sorted(socket))
		t.takeWhole(node, t.free.sorted(node))
	}
	if t.PreferAlignByUncoreCache {
		t.takeCaches()
	}
	if !t.DistributeAcrossCores {
		t.takeWhole(core, t.free.sorted(core))
	}
	if t.need > 0 && !t.FullPCPUsOnly {
		rest := t.sortedCPUs()
		t.take(rest[:min(t.need, len(rest))])
	}
}

// takeWhole takes the groups that are wholly free and not larger than the need, in the given order.
func (t *taker) takeWhole(k kind, order []int) {
	for _, g := range order {
		if cpus := t.groups[k][g].cpus; len(cpus) <= t.need && t.free.whole(k, g) {
			t.take(cpus)
		}
	}
}

// takeCaches takes whole caches. It takes the rest from a single cache if one has enough.
func (t *taker) takeCaches() {
	for _, g := range t.free.sorted(cache) {
		if t.need == 0 {
			return
		}
		t.takeWhole(cache, t.free.sorted(cache))
		if t.need > 0 {
			t.takePart(g)
		}
	}
}

// takePart takes everything still needed from the lowest cores of one cache, or nothing.
func (t *taker) takePart(g int) {
	cores := t.free.within(cache, g, core)
	slices.Sort(cores)
	cores = cores[:min(len(cores), (t.need+t.perCore-1)/t.perCore)]
	var cpus []int
	for _, c := range cores {
		if t.FullPCPUsOnly && !t.free.whole(core, c) {
			return
		}
		cpus = append(cpus, t.free.in(core, c)...)
	}
	if t.need%2 != 0 && t.perCore > 1 && len(cpus) > t.need {
		slices.Sort(cpus)
		cpus = cpus[:len(cpus)-1]
	}
	if len(cpus) == t.need {
		t.take(cpus)
	}
}

// sortedCPUs returns all free CPUs, core by core. With distribute-cpus-across-cores they are sorted by ID within a
// socket instead, so that successive CPUs are on different cores.
func (t *taker) sortedCPUs() []int {
	k := core
	if t.DistributeAcrossCores {
		k = socket
	}
	var all []int
	for _, g := range t.free.sorted(k) {
		all = append(all, t.free.in(k, g)...)
	}
	return all
}

// takeCoresThatFit takes whole cores of different sizes that add up to the need. It takes the first such combination in
// sorted order.
func (t *taker) takeCoresThatFit() {
	cores := slices.DeleteFunc(t.free.sorted(core), func(c int) bool { return !t.free.whole(core, c) })
	// fits[i][n]: some of the cores from index i on add up to n.
	fits := make([][]bool, len(cores)+1)
	fits[len(cores)] = make([]bool, t.need+1)
	fits[len(cores)][0] = true
	for i, c := range slices.Backward(cores) {
		size := len(t.groups[core][c].cpus)
		fits[i] = slices.Clone(fits[i+1])
		for n := size; n <= t.need; n++ {
			fits[i][n] = fits[i][n] || fits[i+1][n-size]
		}
	}
	if !fits[0][t.need] {
		return
	}
	for i, c := range cores {
		cpus := t.groups[core][c].cpus
		if len(cpus) <= t.need && fits[i+1][t.need-len(cpus)] {
			t.take(cpus)
		}
	}
}
