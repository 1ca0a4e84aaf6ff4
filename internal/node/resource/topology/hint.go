package topology

import (
	"iter"
	"math/bits"
)

// Nodes is a set of NUMA nodes with ids 0 to 63.
type Nodes uint64

// Of returns the set of these nodes.
func Of(ids ...int) Nodes {
	var n Nodes
	for _, id := range ids {
		n |= 1 << id
	}
	return n
}

// Has reports whether a node is in the set.
func (n Nodes) Has(id int) bool { return n&(1<<id) != 0 }

// Len is the number of nodes.
func (n Nodes) Len() int { return bits.OnesCount64(uint64(n)) }

// IDs returns the nodes in ascending order.
func (n Nodes) IDs() []int {
	ids := make([]int, 0, n.Len())
	for rest := uint64(n); rest != 0; rest &= rest - 1 {
		ids = append(ids, bits.TrailingZeros64(rest))
	}
	return ids
}

// Subsets iterates over the subsets of ids with the given size, which is at least 1. places is a bit mask of indexes in
// ids and ascends.
func Subsets(ids []int, size int) iter.Seq2[uint64, Nodes] {
	return func(yield func(places uint64, n Nodes) bool) {
		for places := uint64(1)<<size - 1; places < 1<<len(ids); {
			var n Nodes
			for rest := places; rest != 0; rest &= rest - 1 {
				n |= Of(ids[bits.TrailingZeros64(rest)])
			}
			if !yield(places, n) {
				return
			}
			// The next greater number with the same count of set bits (Gosper's hack).
			low := places & -places
			high := places + low
			places = high | (places^high)>>(bits.TrailingZeros64(low)+2)
		}
	}
}

// Hint is one way to serve a request: from these nodes together. The zero value means any nodes, not preferred.
type Hint struct {
	Nodes Nodes
	// Preferred is set if no hint of the request has fewer nodes.
	Preferred bool
}
