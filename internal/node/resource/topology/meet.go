package topology

import (
	"cmp"
	"math/bits"
	"slices"
)

// maxDense is the largest number of nodes for counting by set of nodes. 2^20 counts take 8 MiB.
const maxDense = 20

// inCommon returns the sets of nodes that are the intersection of all and one member of each list, without duplicates
// and without the empty set.
//
// While the lists are short, it intersects the pairs of two lists, then the result with the next list. For long lists
// it counts instead (the superset zeta transform and its inverse). A way is one choice of a member from each list. For
// each set x, inCommon counts the members of a list that contain x. The product over all lists is the number of ways
// whose intersection contains x. It then subtracts the ways with a larger intersection. The rest are the ways whose
// intersection is exactly x. This costs n*2^n for n nodes and each list, while a list has up to 2^n members.
func inCommon(all Nodes, lists [][]Nodes) []Nodes {
	if all == 0 {
		return nil
	}
	slices.SortFunc(lists, func(a, b []Nodes) int { return cmp.Compare(len(a), len(b)) })
	met := []Nodes{all}
	n := all.Len()
	for i, list := range lists {
		if n <= maxDense && len(met)*len(list) > n<<n {
			return meetCounts(all, append(lists[i:], met))
		}
		met = meetPairs(all, met, list)
	}
	return met
}

func meetPairs(all Nodes, a, b []Nodes) []Nodes {
	seen := newSeen(all)
	var met []Nodes
	for _, x := range a {
		for _, y := range b {
			if common := x & y & all; common != 0 && seen.add(common) {
				met = append(met, common)
			}
		}
	}
	return met
}

// seen is a set of node sets: a bit map, or a map if there are more than maxDense nodes.
type seen struct {
	ids  []int
	bits []uint64
	many map[Nodes]bool
}

func newSeen(all Nodes) seen {
	if all.Len() > maxDense {
		return seen{many: map[Nodes]bool{}}
	}
	return seen{ids: all.IDs(), bits: make([]uint64, (1<<all.Len()+63)/64)}
}

// add reports whether the set is new.
func (s *seen) add(n Nodes) bool {
	if s.many != nil {
		known := s.many[n]
		s.many[n] = true
		return !known
	}
	x := compress(s.ids, n)
	bit := uint64(1) << (x % 64)
	known := s.bits[x/64]&bit != 0
	s.bits[x/64] |= bit
	return !known
}

func meetCounts(all Nodes, lists [][]Nodes) []Nodes {
	ids := all.IDs()
	counts, ways := supersets(ids, lists[0]), uint64(len(lists[0]))
	for _, list := range lists[1:] {
		more, product := bits.Mul64(ways, uint64(len(list)))
		if more != 0 { // The counts would overflow. It is enough to know whether there is a way.
			ways = anyWay(counts)
			_, product = bits.Mul64(ways, uint64(len(list)))
		}
		for x, n := range supersets(ids, list) {
			counts[x] *= n
		}
		ways = product
	}
	inverseZeta(counts)
	var met []Nodes
	for x, n := range counts {
		if x != 0 && n != 0 {
			met = append(met, expand(ids, x))
		}
	}
	return met
}

// supersets counts for each set of nodes, as a bit mask of indexes in ids, the members of the list that contain it.
// Duplicates count once.
func supersets(ids []int, list []Nodes) []uint64 {
	counts := make([]uint64, 1<<len(ids))
	for _, n := range list {
		counts[compress(ids, n)] = 1
	}
	zeta(counts)
	return counts
}

// anyWay reduces the number of ways for each exact intersection to 0 or 1. It returns how many intersections are
// possible.
func anyWay(counts []uint64) uint64 {
	inverseZeta(counts)
	sets := uint64(0)
	for x, n := range counts {
		counts[x] = min(n, 1)
		sets += counts[x]
	}
	zeta(counts)
	return sets
}

// zeta adds to the count of each set the counts of its supersets.
func zeta(counts []uint64) {
	for bit := 1; bit < len(counts); bit *= 2 {
		for at := 0; at < len(counts); at += 2 * bit {
			without, with := counts[at:at+bit], counts[at+bit:at+2*bit]
			for i, n := range with {
				without[i] += n
			}
		}
	}
}

// inverseZeta is the inverse of zeta.
func inverseZeta(counts []uint64) {
	for bit := 1; bit < len(counts); bit *= 2 {
		for at := 0; at < len(counts); at += 2 * bit {
			without, with := counts[at:at+bit], counts[at+bit:at+2*bit]
			for i, n := range with {
				without[i] -= n
			}
		}
	}
}

// compress converts a set to a bit mask of indexes in ids: bit i is node ids[i].
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

// expand is the inverse of compress.
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
