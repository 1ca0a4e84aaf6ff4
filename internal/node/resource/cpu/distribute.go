package cpu

import (
	"encoding/binary"
	"math"
	"slices"
)

// distribute takes CPUs evenly from as few NUMA nodes as possible, but not from fewer than rules.nodes. Among such
// choices it takes the one after which the free CPUs of all nodes are most evenly spread (KEP-2902). It takes nothing
// if no choice works.
//
// The kubelet forgets the best nodes when it continues to search. So with 4 or more nodes it may choose others
// (kubernetes 141237). This search keeps them.
func (t *taker) distribute() {
	if t.need == 0 {
		return
	}
	size := t.portion
	d := distribution{size: size, need: t.need, nodes: t.free.sorted(node)}
	for _, g := range d.nodes {
		d.free = append(d.free, t.takable(g))
	}
	portions := (t.need-1)/size + 1
	perNode := ((len(t.cpus)-1)/size)/len(t.groups[node]) + 1
	least := (portions-1)/perNode + 1
	if t.rules.nodes <= len(d.nodes) {
		least = max(least, t.rules.nodes)
	}
	for k := least; k <= min(portions, len(d.nodes)); k++ {
		best, found := d.best(k)
		if !found {
			continue
		}
		even := d.even(k)
		for i, n := range best {
			t.takeFrom(d.nodes[i], min(n, even))
			for range (n - even) / size {
				t.takeFrom(d.nodes[i], size)
			}
		}
		return
	}
}

// takable counts the free CPUs of a node. With full-pcpus-only it counts only the CPUs of cores that are free as a
// whole.
func (t *taker) takable(g int) int {
	if !t.FullPCPUsOnly {
		return t.free.count[node][g]
	}
	n := 0
	for _, cpu := range t.free.in(node, g) {
		if t.free.whole(core, t.of[core][cpu]) {
			n++
		}
	}
	return n
}

// takeFrom packs n CPUs into one node.
func (t *taker) takeFrom(g, n int) {
	part := newTaker(t.layout, t.rules, nil, n)
	for _, cpu := range t.free.in(node, g) {
		part.free.add(cpu)
	}
	part.PreferAlignByUncoreCache = false
	part.pack()
	t.take(part.chosen)
}

// distribution is the search for the nodes to take CPUs from.
type distribution struct {
	size, need int
	nodes      []int // in the order of the search
	free       []int // by place in nodes
}

// even is the number of CPUs that each of k nodes gives at least, in whole portions.
func (d *distribution) even(k int) int { return d.need / k / d.size * d.size }

// best returns how many CPUs to take from each node if k nodes give some. It returns the first choice with the smallest
// standard deviation of free CPUs.
//
// The number of choices is exponential: every subset of k nodes, and for each subset every choice of the nodes that
// give one more portion. Two things keep it short. Nodes with equally many free CPUs are interchangeable, so best tries
// each combination of such amounts once. And the choice of the nodes with the most free CPUs gives a limit: best skips
// the subsets whose best case is less even than the limit.
func (d *distribution) best(k int) ([]int, bool) {
	s := search{distribution: d, left: make([]int, len(d.free)), balance: math.Inf(1), limit: math.MaxInt}
	s.try(d.freest(k))
	if s.best != nil {
		// Deviations are rounded to 3 decimals. Sums of squares within this margin may round to the same deviation.
		s.limit = s.squares + int(0.002*float64(len(d.free))*s.balance) + 2
	}
	s.best, s.balance = nil, math.Inf(1)
	tried := map[string]bool{}
	combinations(len(d.nodes), k, func(chosen []int) bool {
		key := make([]byte, 0, 2*k)
		for _, i := range chosen {
			key = binary.LittleEndian.AppendUint16(key, uint16(d.free[i]))
		}
		if !tried[string(key)] {
			tried[string(key)] = true
			s.try(chosen)
		}
		return s.balance > 0
	})
	if s.best == nil {
		return nil, false
	}
	take := make([]int, len(d.free))
	for i, left := range s.best {
		take[i] = d.free[i] - left
	}
	return take, true
}

// freest returns the k nodes with the most free CPUs, in the order of d.nodes.
func (d *distribution) freest(k int) []int {
	chosen := make([]int, len(d.free))
	for i := range chosen {
		chosen[i] = i
	}
	slices.SortStableFunc(chosen, func(a, b int) int { return d.free[b] - d.free[a] })
	slices.Sort(chosen[:k])
	return chosen[:k]
}

// search is the state of best.
type search struct {
	*distribution
	left    []int // by node: free CPUs after the current choice
	best    []int // left of the best choice; nil before the first
	each    int   // CPUs that each of the chosen nodes gives
	squares int   // sum of squares of left: since the sum of left is constant, it sorts choices as the deviation does
	balance float64
	limit   int // for squares
}

// try takes evenly from the chosen nodes, and the rest in portions from every subset of them.
func (s *search) try(chosen []int) {
	s.each = s.even(len(chosen))
	copy(s.left, s.free)
	var more []int
	for _, i := range chosen {
		if s.free[i] < s.each {
			return
		}
		s.left[i] -= s.each
		if s.left[i] >= s.size {
			more = append(more, i)
		}
	}
	over := s.need - s.each*len(chosen)
	squares := 0
	for _, n := range s.left {
		squares += n * n
	}
	if over == 0 {
		s.keep(squares)
		return
	}
	if s.least(squares, more, over) > s.limit {
		return
	}
	for n := len(more); n > 0; n-- {
		combinations(len(more), n, func(from []int) bool {
			s.distributeRest(squares, more, from, over)
			return true
		})
	}
}

// least is a lower bound of squares after the rest is taken too.
func (s *search) least(squares int, more []int, over int) int {
	most := 0
	for _, i := range more {
		most = max(most, s.left[i])
	}
	return squares - over*(2*most-s.size)
}

// distributeRest takes the rest from the nodes in turn, one portion at a time, evaluates the result and restores left.
func (s *search) distributeRest(squares int, more, from []int, over int) {
	given := 0
	for before := -1; given < over && given != before; {
		before = given
		for _, f := range from {
			if i := more[f]; given < over && s.left[i] >= s.size {
				squares += s.size * (s.size - 2*s.left[i])
				s.left[i] -= s.size
				given += s.size
			}
		}
	}
	if given == over {
		s.keep(squares)
	}
	for _, f := range from {
		s.left[more[f]] = s.free[more[f]] - s.each
	}
}

// keep records the current choice if it is the most even so far.
func (s *search) keep(squares int) {
	if s.best != nil && squares >= s.squares {
		return
	}
	s.squares = squares
	if balance := s.deviation(); balance < s.balance {
		s.balance, s.best = balance, slices.Clone(s.left)
	}
}

// deviation is the standard deviation of the free CPUs of the nodes, rounded to 3 decimals as in the kubelet.
func (s *search) deviation() float64 {
	sum := 0
	for _, n := range s.left {
		sum += n
	}
	mean := round(float64(sum) / float64(len(s.left)))
	squares := 0.0
	for _, n := range s.left {
		squares += (float64(n) - mean) * (float64(n) - mean)
	}
	return round(math.Sqrt(squares / float64(len(s.left))))
}

func round(x float64) float64 { return math.Round(x*1000) / 1000 }

// combinations visits the k-element subsets of 0 to n-1 in order, until visit returns false.
func combinations(n, k int, visit func([]int) bool) {
	chosen := make([]int, k)
	var walk func(at, from int) bool
	walk = func(at, from int) bool {
		if at == k {
			return visit(chosen)
		}
		for i := from; i <= n-k+at; i++ {
			chosen[at] = i
			if !walk(at+1, i+1) {
				return false
			}
		}
		return true
	}
	walk(0, 0)
}
