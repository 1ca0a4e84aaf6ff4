package topology

import (
	"math/bits"
	"slices"
)

// meet are the sets, without duplicates, that a member of a and a member of b
// have in common within all; the empty set is left out, as nothing comes from it.
//
// Taking each pair is cheap while the lists are short. Beyond that, counting is
// cheaper: how many members of a, and of b, hold at least the nodes x, for each
// x, multiplied, is in how many pairs x is common to both; taking from that what
// is common in the pairs of larger sets leaves the pairs that have exactly x in
// common (the superset zeta transform and its inverse). That costs n*2^n for n
// nodes however long the lists are, and a list has at most 2^n members.
func meet(all Nodes, a, b []Nodes) []Nodes {
	n := all.Len()
	if n > maxDense || len(a)*len(b) <= n<<n {
		return meetPairs(all, a, b)
	}
	return meetCounts(all, a, b)
}

// maxDense is the number of nodes up to which a count for each set of nodes is
// kept: 2^20 counts are 8 MiB.
const maxDense = 20

func meetPairs(all Nodes, a, b []Nodes) []Nodes {
	seen := make(map[Nodes]struct{}, len(a))
	var met []Nodes
	for _, x := range a {
		for _, y := range b {
			common := x & y & all
			if _, known := seen[common]; common != 0 && !known {
				seen[common] = struct{}{}
				met = append(met, common)
			}
		}
	}
	return met
}

func meetCounts(all Nodes, a, b []Nodes) []Nodes {
	ids := all.IDs()
	counts := supersets(ids, a)
	for x, n := range supersets(ids, b) {
		counts[x] *= n
	}
	for bit := 1; bit < len(counts); bit <<= 1 {
		for x := range counts {
			if x&bit == 0 {
				counts[x] -= counts[x|bit]
			}
		}
	}
	var met []Nodes
	for x, n := range counts {
		if x != 0 && n != 0 {
			met = append(met, expand(ids, x))
		}
	}
	return met
}

// supersets says for each set, written as bits of ids, how many of the list hold
// it.
func supersets(ids []int, list []Nodes) []uint64 {
	counts := make([]uint64, 1<<len(ids))
	for _, n := range list {
		counts[compress(ids, n)] = 1
	}
	for bit := 1; bit < len(counts); bit <<= 1 {
		for x := range counts {
			if x&bit == 0 {
				counts[x] += counts[x|bit]
			}
		}
	}
	return counts
}

// compress writes a set as bits of ids: bit i is node ids[i].
func compress(ids []int, n Nodes) int {
	if ids[len(ids)-1] == len(ids)-1 {
		return int(n & (1<<len(ids) - 1))
	}
	x := 0
	for rest := uint64(n); rest != 0; rest &= rest - 1 {
		if i, found := slices.BinarySearch(ids, bits.TrailingZeros64(rest)); found {
			x |= 1 << i
		}
	}
	return x
}

// expand undoes compress.
func expand(ids []int, x int) Nodes {
	if ids[len(ids)-1] == len(ids)-1 {
		return Nodes(x)
	}
	var n Nodes
	for rest := uint(x); rest != 0; rest &= rest - 1 {
		n |= Of(ids[bits.TrailingZeros(rest)])
	}
	return n
}
