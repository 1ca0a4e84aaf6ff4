package topology

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/berth-run/berth/internal/node/machine"
)

// Wish is what can be done for one resource of a container or a pod.
type Wish struct {
	Resource string
	// Hints are the ways to serve it. Nil: any nodes will do. Empty and not nil:
	// it cannot be served. A hint of no nodes is one that does not care which.
	Hints []Hint
}

// Merge finds the nodes from which all wishes are to be served, and says whether
// the policy admits that. The answer is the kubelet's for the same hints
// (KEP-693, KEP-3545): of every way to choose one hint for each wish, the nodes
// that the chosen hints have in common; best is
//
//   - the same nodes in each, and each preferred; of several such the fewest
//     nodes, then (PreferClosest) the nearest to each other, then the lowest ids;
//   - else as many nodes as the neediest wish takes at the least, else fewer but
//     as many as possible, else more but as few as possible; then as above.
//
// That order is total, so the best of all ways does not depend on the order in
// which they are looked at, and the ways themselves (a product: exponential in
// the number of wishes) need not be looked at. Preferred answers are the nodes
// that all wishes prefer: one pass over the hints. Only if there are none, the
// sets of nodes that can be had in common are computed, see inCommon.
//
// Policy none admits everything with the zero Hint. Under single-numa-node the
// zero Nodes with Preferred is an answer too: nobody cares, or the machine has
// only one node.
func Merge(o Options, nodes []machine.Node, wishes []Wish) (Hint, bool) {
	if o.Policy == None || o.Policy == "" {
		return Hint{}, true
	}
	m := merge{order: newOrder(o, nodes)}
	for _, w := range wishes {
		m.choices = append(m.choices, newChoice(w, o.Policy == SingleNUMANode))
	}
	best := m.best()
	if o.Policy == SingleNUMANode && best.Nodes == m.order.all {
		best.Nodes = 0
	}
	return best, best.Preferred || o.Policy == BestEffort
}

// choice is a Wish made ready.
type choice struct {
	hints     []Hint
	preferred []Nodes // of its hints, sorted
	// indifferent: one of its hints does not care for nodes; easy: and is preferred.
	indifferent, easy bool
	least             int // nodes of its narrowest hint; 0: none has nodes
}

func newChoice(w Wish, single bool) choice {
	if w.Hints == nil {
		return choice{indifferent: true, easy: true}
	}
	if len(w.Hints) == 0 {
		return choice{indifferent: !single}
	}
	c := choice{hints: w.Hints}
	if single {
		c.hints = slices.Collect(func(yield func(Hint) bool) {
			for _, h := range w.Hints {
				if h.Preferred && h.Nodes&(h.Nodes-1) == 0 && !yield(h) {
					return
				}
			}
		})
	}
	for _, h := range c.hints {
		if h.Nodes == 0 {
			c.indifferent, c.easy = true, c.easy || h.Preferred
			continue
		}
		if n := h.Nodes.Len(); c.least == 0 || n < c.least {
			c.least = n
		}
		if h.Preferred {
			c.preferred = append(c.preferred, h.Nodes)
		}
	}
	slices.Sort(c.preferred)
	return c
}

type merge struct {
	order   order
	choices []choice
}

func (m *merge) best() Hint {
	for _, c := range m.choices {
		m.order.want = max(m.order.want, c.least)
	}
	if best := m.order.fittest(m.agreed()); best != 0 {
		return Hint{Nodes: best, Preferred: true}
	}
	if best := m.order.closest(m.common()); best != 0 {
		return Hint{Nodes: best}
	}
	return Hint{Nodes: m.order.all}
}

// agreed are the nodes that every wish prefers.
func (m *merge) agreed() []Nodes {
	var agreed []Nodes
	limited := false
	for _, c := range m.choices {
		switch {
		case c.easy:
		case !limited:
			agreed, limited = slices.Clone(c.preferred), true
		default:
			agreed = slices.DeleteFunc(agreed, func(n Nodes) bool {
				_, found := slices.BinarySearch(c.preferred, n)
				return !found
			})
		}
	}
	if limited {
		return agreed
	}
	for _, c := range m.choices {
		agreed = append(agreed, c.preferred...)
	}
	return append(agreed, m.order.all)
}

// common are the sets of nodes that one hint of each wish can have in common.
func (m *merge) common() []Nodes {
	var lists [][]Nodes
	for _, c := range m.choices {
		if c.indifferent && len(c.hints) == 0 {
			continue
		}
		list := make([]Nodes, len(c.hints))
		for i, h := range c.hints {
			list[i] = h.Nodes
			if h.Nodes == 0 {
				list[i] = m.order.all
			}
		}
		lists = append(lists, list)
	}
	return inCommon(m.order.all, lists)
}

// order says which of two sets of nodes is better.
type order struct {
	all      Nodes
	want     int     // nodes that the neediest wish takes at the least
	distance [][]int // by node id; nil: it does not matter
}

func newOrder(o Options, nodes []machine.Node) order {
	var r order
	for _, n := range nodes {
		r.all |= Of(n.ID)
	}
	if !o.PreferClosest || o.Policy == SingleNUMANode {
		return r
	}
	r.distance = make([][]int, 64)
	for _, n := range nodes {
		if n.ID >= 64 {
			continue
		}
		r.distance[n.ID] = make([]int, 64)
		for _, to := range r.all.IDs() {
			r.distance[n.ID][to] = n.Distances[to]
		}
	}
	return r
}

// fittest is the narrowest, nearest, lowest; 0 without any.
func (o order) fittest(candidates []Nodes) Nodes {
	return o.first(candidates, Nodes.Len)
}

// closest is the one nearest to the number of nodes wanted, fewer before more;
// 0 without any.
func (o order) closest(candidates []Nodes) Nodes {
	return o.first(candidates, func(n Nodes) int {
		if n.Len() <= o.want {
			return o.want - n.Len()
		}
		return n.Len() // more than any that takes fewer than wanted
	})
}

// first is the candidate of the least rank; of these, which have as many nodes
// each, the nearest to each other, then the lowest.
func (o order) first(candidates []Nodes, rank func(Nodes) int) Nodes {
	var best Nodes
	least, near := 0, 0
	for _, n := range candidates {
		if n &= o.all; n == 0 {
			continue
		}
		r := rank(n)
		if best != 0 && r > least {
			continue
		}
		d := o.spread(n)
		if best == 0 || cmp.Or(cmp.Compare(r, least), cmp.Compare(d, near), cmp.Compare(n, best)) < 0 {
			best, least, near = n, r, d
		}
	}
	return best
}

// spread is the sum of the distances between all nodes of a set, from each to
// each; 0 if that does not matter. For sets of the same size it orders as their
// average does.
func (o order) spread(n Nodes) int {
	if o.distance == nil {
		return 0
	}
	sum := 0
	for from := uint64(n); from != 0; from &= from - 1 {
		row := o.distance[bits.TrailingZeros64(from)]
		for to := uint64(n); to != 0; to &= to - 1 {
			sum += row[bits.TrailingZeros64(to)]
		}
	}
	return sum
}
