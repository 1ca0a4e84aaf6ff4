package topology

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/berth-run/berth/internal/node/machine"
)

// Offer lists the ways to serve one resource of a container or a pod.
type Offer struct {
	Resource string
	// Hints are the alternatives. Nil means that any nodes will do. Empty but not nil means that the resource cannot be
	// served. A hint without nodes accepts any nodes.
	Hints []Hint
}

// Merge finds the NUMA nodes that serve all offers, and reports whether the policy admits the pod there. The answer
// equals the kubelet's for the same hints (KEP-693, KEP-3545). The kubelet looks at every way to choose one hint of
// each offer and takes the nodes that the chosen hints have in common. The best way is, in this order:
//
//   - one in which all hints have the same nodes and are preferred; among these the one with the fewest nodes, then
//     (PreferClosest) the smallest distances, then the lowest IDs;
//   - otherwise the one with as many nodes as the most demanding offer needs at least; if there is none, fewer nodes
//     but as many as possible; if there is none, more nodes but as few as possible; then as above.
//
// This order is total, so the best way does not depend on the order of the search. It is therefore not necessary to
// visit all ways, whose number is exponential in the number of offers. Preferred answers are the nodes that all offers
// prefer: one pass over the hints finds them. Only if there are none, inCommon computes the sets of nodes that the
// offers can have in common.
//
// Policy none admits everything with the zero Hint. Under single-numa-node an answer can be preferred and have no
// nodes: all offers accept any nodes, or the machine has only one.
func Merge(o Options, nodes []machine.Node, offers []Offer) (Hint, bool) {
	if o.Policy == None || o.Policy == "" {
		return Hint{}, true
	}
	m := merge{order: newOrder(o, nodes)}
	for _, f := range offers {
		m.choices = append(m.choices, newChoice(f, o.Policy == SingleNUMANode))
	}
	best := m.best()
	if o.Policy == SingleNUMANode && best.Nodes == m.order.all {
		best.Nodes = 0
	}
	return best, best.Preferred || o.Policy == BestEffort
}

// choice is an Offer prepared for the merge.
type choice struct {
	hints     []Hint
	preferred []Nodes // nodes of the preferred hints, sorted
	// indifferent: some hint accepts any nodes. easy: such a hint is also preferred.
	indifferent, easy bool
	least             int // size of the narrowest hint; 0: no hint has nodes
}

func newChoice(f Offer, single bool) choice {
	if f.Hints == nil {
		return choice{indifferent: true, easy: true}
	}
	if len(f.Hints) == 0 {
		return choice{indifferent: !single}
	}
	c := choice{hints: f.Hints}
	if single {
		c.hints = slices.Collect(func(yield func(Hint) bool) {
			for _, h := range f.Hints {
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

// agreed returns the nodes that every offer prefers.
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

// common returns the sets of nodes that one hint of each offer can have in common.
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

// order ranks sets of nodes.
type order struct {
	all      Nodes
	want     int     // nodes that the most demanding offer needs at least
	distance [][]int // by node ID; nil: distances do not count
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

// fittest returns the narrowest candidate, then the nearest, then the lowest. It returns 0 if there is none.
func (o order) fittest(candidates []Nodes) Nodes {
	return o.first(candidates, Nodes.Len)
}

// closest returns the candidate whose size is closest to want, smaller before larger. It returns 0 if there is none.
func (o order) closest(candidates []Nodes) Nodes {
	return o.first(candidates, func(n Nodes) int {
		if n.Len() <= o.want {
			return o.want - n.Len()
		}
		return n.Len() // worse than every candidate with at most want nodes
	})
}

// first returns the candidate with the lowest rank. Candidates of equal rank have equal sizes; among these it returns
// the one with the smallest distances, then the lowest IDs.
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

// spread is the sum of the distances from each node of a set to each node of it, or 0 if distances do not count. For
// sets of the same size it orders as the average does.
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
