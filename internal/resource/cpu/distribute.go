package cpu

import "math"

// distribute takes evenly from as few NUMA nodes as can serve that, but not from
// fewer than its rules say, and from those after which the nodes have most evenly
// much left (KEP-2902). It takes nothing if no nodes can.
//
// The kubelet loses the best nodes it has found when it goes on looking: at 4
// nodes and more it may take others (kubernetes 141237). Here they are kept.
func (t *taker) distribute() {
	if t.need == 0 {
		return
	}
	size := t.portion
	d := distribution{size: size, need: t.need, nodes: t.sorted(node)}
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

// takable are the free CPUs of a node, with full-pcpus-only those of cores that
// are wholly free.
func (t *taker) takable(g int) int {
	if !t.FullPCPUsOnly {
		return t.count[node][g]
	}
	n := 0
	for _, cpu := range t.freeIn(node, g) {
		if t.whole(core, t.of[core][cpu]) {
			n++
		}
	}
	return n
}

// takeFrom packs n CPUs into one node.
func (t *taker) takeFrom(g, n int) {
	part := newTaker(t.layout, t.rules, nil, n)
	for _, cpu := range t.freeIn(node, g) {
		part.add(cpu)
	}
	part.PreferAlignByUncoreCache = false
	part.pack()
	t.take(part.taken)
}

// distribution is the search for nodes to take from.
type distribution struct {
	size, need int
	nodes      []int // in the order in which they are tried
	free       []int // by place in nodes
}

// even is what each of k nodes gives, all in portions.
func (d *distribution) even(k int) int { return d.need / k / d.size * d.size }

// best is how many CPUs to take from each node if k of them are to give: the
// first found of those that leave the least standard deviation.
func (d *distribution) best(k int) ([]int, bool) {
	even := d.even(k)
	var best []int
	least := math.Inf(1)
	combinations(len(d.nodes), k, func(chosen []int) bool {
		take := make([]int, len(d.nodes))
		var more []int
		for _, i := range chosen {
			if d.free[i] < even {
				return true
			}
			take[i] = even
			if d.free[i]-even >= d.size {
				more = append(more, i)
			}
		}
		rest := d.need - even*k
		if rest == 0 {
			least, best = d.keep(least, best, take)
		}
		for s := len(more); rest > 0 && s > 0; s-- {
			combinations(len(more), s, func(from []int) bool {
				if spread, ok := d.spread(take, more, from, rest); ok {
					least, best = d.keep(least, best, spread)
				}
				return true
			})
		}
		return least > 0
	})
	return best, best != nil
}

// spread hands the rest out to the nodes in turn, one portion at a time.
func (d *distribution) spread(take, more, from []int, rest int) ([]int, bool) {
	took := append([]int(nil), take...)
	for before := 0; rest > 0 && rest != before; {
		before = rest
		for _, f := range from {
			if i := more[f]; rest > 0 && d.free[i]-took[i] >= d.size {
				took[i] += d.size
				rest -= d.size
			}
		}
	}
	return took, rest == 0
}

func (d *distribution) keep(least float64, best, take []int) (float64, []int) {
	if balance := d.balance(take); balance < least {
		return balance, take
	}
	return least, best
}

// balance is the standard deviation of what the nodes have left, to 3 decimals.
func (d *distribution) balance(take []int) float64 {
	sum := 0.0
	for i, n := range d.free {
		sum += float64(n - take[i])
	}
	mean := round(sum / float64(len(d.free)))
	sum = 0
	for i, n := range d.free {
		sum += (float64(n-take[i]) - mean) * (float64(n-take[i]) - mean)
	}
	return round(math.Sqrt(sum / float64(len(d.free))))
}

func round(x float64) float64 { return math.Round(x*1000) / 1000 }

// combinations visits the k-element subsets of 0 to n-1 in order until visit
// says false.
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
