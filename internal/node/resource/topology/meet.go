package topology

import (
	"cmp"
	"math/bits"
	"slices"
)

// maxDense is the number of nodes up to which a count for each set of nodes is
// kept: 2^20 counts are 8 MiB.
const maxDense = 20

// inCommon are the sets that one member of each list can have in common within
// all, without duplicates; the empty set is left out, as nothing comes from it.
//
// Taking each pair of two lists, and what comes of that with the next, is cheap
// while the lists are short. Beyond that, counting is cheaper: how many members of
// a list hold at least the nodes x, for each x, multiplied over the lists, is in
// how many ways x is common to all; taking from that the ways in which more is
// common leaves those in which it is exactly x (the superset zeta transform and its
// inverse). That costs n*2^n for n nodes and each list, however long it is; a list
// has at most 2^n members.
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

// seen remembers sets: a bit for each if there are not too many.
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

// add says whether the set is new.
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
		if more != 0 { // the counts would not fit: whether there is a way is enough
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

// supersets says for each set, written as bits of ids, how many of the list hold
// it. Members that are there twice count once.
func supersets(ids []int, list []Nodes) []uint64 {
	counts := make([]uint64, 1<<len(ids))
	for _, n := range list {
		counts[compress(ids, n)] = 1
	}
	zeta(counts)
	return counts
}

// anyWay makes each number of ways 0 or 1, and says how many sets have one.
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

// zeta adds to each set what its supersets have.
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

// inverseZeta undoes zeta.
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
