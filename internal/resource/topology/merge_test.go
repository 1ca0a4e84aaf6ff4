package topology

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/machine"
)

// nodes makes n NUMA nodes in a line: the distance grows by 10 with each hop.
func nodes(ids ...int) []machine.Node {
	var all []machine.Node
	for _, id := range ids {
		n := machine.Node{ID: id, Distances: map[int]int{}}
		for _, to := range ids {
			n.Distances[to] = 10 + 10*max(id-to, to-id)
		}
		all = append(all, n)
	}
	return all
}

func upTo(n int) []machine.Node {
	var ids []int
	for id := range n {
		ids = append(ids, id)
	}
	return nodes(ids...)
}

func yes(ids ...int) Hint { return Hint{Nodes: Of(ids...), Preferred: true} }
func no(ids ...int) Hint  { return Hint{Nodes: Of(ids...)} }

func TestMerge(t *testing.T) {
	type answer struct {
		Hint  Hint
		Admit bool
	}
	tests := []struct {
		name    string
		options Options
		nodes   int
		wishes  []Wish
		want    answer
	}{
		{"none asks nothing", Options{Policy: None}, 2, []Wish{{Hints: []Hint{}}}, answer{Hint{}, true}},
		{"the default is none", Options{}, 2, []Wish{{Hints: []Hint{yes(0)}}}, answer{Hint{}, true}},
		{"nobody cares", Options{Policy: Restricted}, 2, []Wish{{}, {}}, answer{yes(0, 1), true}},
		{"nobody cares, on one node", Options{Policy: SingleNUMANode}, 2, []Wish{{}, {}}, answer{yes(), true}},
		{"one node that all prefer", Options{Policy: SingleNUMANode}, 2,
			[]Wish{{Hints: []Hint{yes(0), yes(1), no(0, 1)}}, {Hints: []Hint{yes(1), no(0, 1)}}}, answer{yes(1), true}},
		{"each prefers another", Options{Policy: Restricted}, 2,
			[]Wish{{Hints: []Hint{yes(0), no(0, 1)}}, {Hints: []Hint{yes(1), no(0, 1)}}}, answer{no(0), false}},
		{"each prefers another, admitted", Options{Policy: BestEffort}, 2,
			[]Wish{{Hints: []Hint{yes(0), no(0, 1)}}, {Hints: []Hint{yes(1), no(0, 1)}}}, answer{no(0), true}},
		{"nothing in common", Options{Policy: BestEffort}, 2,
			[]Wish{{Hints: []Hint{yes(0)}}, {Hints: []Hint{yes(1)}}}, answer{no(0, 1), true}},
		{"one cannot be served", Options{Policy: Restricted}, 2,
			[]Wish{{Hints: []Hint{yes(0)}}, {Hints: []Hint{}}}, answer{no(0), false}},
		{"one cannot be served on one node", Options{Policy: SingleNUMANode}, 2,
			[]Wish{{Hints: []Hint{yes(0)}}, {Hints: []Hint{}}}, answer{no(), false}},
		{"two nodes are not one", Options{Policy: SingleNUMANode}, 4, []Wish{{Hints: []Hint{yes(0, 1)}}}, answer{no(), false}},
		{"a machine of one node", Options{Policy: SingleNUMANode}, 1, []Wish{{Hints: []Hint{yes(0)}}}, answer{yes(), true}},
		{"lowest ids", Options{Policy: BestEffort}, 4, []Wish{{Hints: []Hint{yes(2, 3), yes(0, 3), yes(1, 2)}}}, answer{yes(1, 2), true}},
		{"lowest ids, far apart", Options{Policy: BestEffort}, 4, []Wish{{Hints: []Hint{yes(0, 3), yes(2, 3)}}}, answer{yes(0, 3), true}},
		{"closest", Options{Policy: BestEffort, PreferClosest: true}, 4, []Wish{{Hints: []Hint{yes(0, 3), yes(2, 3)}}}, answer{yes(2, 3), true}},
		{"as many as the neediest takes", Options{Policy: BestEffort}, 4,
			[]Wish{{Hints: []Hint{yes(2), no(0, 1, 2), no(0, 1)}}, {Hints: []Hint{yes(0, 1), no(0, 1, 2)}}}, answer{no(0, 1), true}},
		{"fewer than the neediest takes before more", Options{Policy: BestEffort}, 4,
			[]Wish{{Hints: []Hint{yes(3), no(0, 1, 2, 3)}}, {Hints: []Hint{yes(0, 1, 3), no(0, 1, 2, 3)}}, {Hints: []Hint{no(3), no(0, 2, 3)}}},
			answer{no(0, 2, 3), true}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			hint, admit := Merge(test.options, upTo(test.nodes), test.wishes)
			if diff := cmp.Diff(test.want, answer{hint, admit}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Every answer is that of looking at each way to choose one hint a wish.
func TestMergeIsTheBestOfAllWays(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 693))
	machines := [][]machine.Node{upTo(1), upTo(2), upTo(3), upTo(4), upTo(6), nodes(0, 8, 16, 17)}
	policies := []Policy{BestEffort, Restricted, SingleNUMANode}
	for i := range 30000 {
		o := Options{Policy: policies[i%3], PreferClosest: i%2 == 1}
		on := machines[random.IntN(len(machines))]
		wishes := randomWishes(random, on)
		want, wantAdmit := reference(o, on, wishes)
		got, admit := Merge(o, on, wishes)
		if got != want || admit != wantAdmit {
			t.Fatalf("%+v on %d nodes, %+v: got %+v %v, want %+v %v", o, len(on), wishes, got, admit, want, wantAdmit)
		}
	}
}

// Both ways to compute what two lists have in common agree.
func TestMeet(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 693))
	for _, all := range []Nodes{Of(0), Of(0, 1, 2), Of(0, 1, 2, 3, 4, 5, 6), Of(1, 5, 40, 63)} {
		for range 500 {
			a, b := randomSets(random, all), randomSets(random, all)
			pairs, counted := map[Nodes]bool{}, map[Nodes]bool{}
			for _, n := range meetPairs(all, a, b) {
				pairs[n] = true
			}
			for _, n := range meetCounts(all, a, b) {
				counted[n] = true
			}
			if diff := cmp.Diff(pairs, counted); diff != "" {
				t.Fatalf("%v and %v: %s", a, b, diff)
			}
		}
	}
}

func randomSets(random *rand.Rand, all Nodes) []Nodes {
	var sets []Nodes
	for range random.IntN(12) {
		sets = append(sets, Nodes(random.Uint64())&all)
	}
	return sets
}

// randomWishes are as many as can be tried in every way within a moment.
func randomWishes(random *rand.Rand, on []machine.Node) []Wish {
	var wishes []Wish
	ways := 1
	for range random.IntN(6) {
		w := randomWish(random, on)
		if ways *= max(1, len(w.Hints)); ways > 20000 {
			break
		}
		wishes = append(wishes, w)
	}
	return wishes
}

// randomWish is any list of hints, or one as allocators make it: all sets that
// have enough, the smallest preferred.
func randomWish(random *rand.Rand, on []machine.Node) Wish {
	switch random.IntN(10) {
	case 0:
		return Wish{}
	case 1:
		return Wish{Hints: []Hint{}}
	case 2, 3, 4:
		w := Wish{Hints: []Hint{}}
		for range random.IntN(6) {
			w.Hints = append(w.Hints, Hint{Nodes: randomNodes(random, on), Preferred: random.IntN(2) == 0})
		}
		return w
	}
	return enough(random, on)
}

func randomNodes(random *rand.Rand, on []machine.Node) Nodes {
	var n Nodes
	for _, node := range on {
		if random.IntN(2) == 0 {
			n |= Of(node.ID)
		}
	}
	return n
}

func enough(random *rand.Rand, on []machine.Node) Wish {
	free, need := make([]int, len(on)), 1+random.IntN(8)
	for i := range free {
		free[i] = random.IntN(5)
	}
	w, least := Wish{Hints: []Hint{}}, 1+random.IntN(len(on))
	for x := 1; x < 1<<len(on); x++ {
		var n Nodes
		have := 0
		for i, node := range on {
			if x&(1<<i) != 0 {
				n, have = n|Of(node.ID), have+free[i]
			}
		}
		if have >= need {
			w.Hints = append(w.Hints, Hint{Nodes: n, Preferred: n.Len() <= least})
		}
	}
	return w
}
