package topology_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource/topology"
	"github.com/berth-run/berth/internal/node/resource/topology/topologytest"
)

func yes(ids ...int) topology.Hint { return topology.Hint{Nodes: topology.Of(ids...), Preferred: true} }
func no(ids ...int) topology.Hint  { return topology.Hint{Nodes: topology.Of(ids...)} }

func TestMerge(t *testing.T) {
	type answer struct {
		Hint  topology.Hint
		Admit bool
	}
	tests := []struct {
		name    string
		options topology.Options
		nodes   int
		wishes  []topology.Wish
		want    answer
	}{
		{"none asks nothing", topology.Options{Policy: topology.None}, 2, []topology.Wish{{Hints: []topology.Hint{}}},
			answer{topology.Hint{}, true}},
		{"the default is none", topology.Options{}, 2, []topology.Wish{{Hints: []topology.Hint{yes(0)}}},
			answer{topology.Hint{}, true}},
		{"nobody cares", topology.Options{Policy: topology.Restricted}, 2, []topology.Wish{{}, {}},
			answer{yes(0, 1), true}},
		{"nobody cares, on one node", topology.Options{Policy: topology.SingleNUMANode}, 2, []topology.Wish{{}, {}},
			answer{yes(), true}},
		{"one node that all prefer", topology.Options{Policy: topology.SingleNUMANode}, 2,
			[]topology.Wish{{Hints: []topology.Hint{yes(0), yes(1), no(0, 1)}},
				{Hints: []topology.Hint{yes(1), no(0, 1)}}}, answer{yes(1), true}},
		{"each prefers another", topology.Options{Policy: topology.Restricted}, 2,
			[]topology.Wish{{Hints: []topology.Hint{yes(0), no(0, 1)}}, {Hints: []topology.Hint{yes(1), no(0, 1)}}},
			answer{no(0), false}},
		{"each prefers another, admitted", topology.Options{Policy: topology.BestEffort}, 2,
			[]topology.Wish{{Hints: []topology.Hint{yes(0), no(0, 1)}}, {Hints: []topology.Hint{yes(1), no(0, 1)}}},
			answer{no(0), true}},
		{"nothing in common", topology.Options{Policy: topology.BestEffort}, 2,
			[]topology.Wish{{Hints: []topology.Hint{yes(0)}}, {Hints: []topology.Hint{yes(1)}}},
			answer{no(0, 1), true}},
		{"one cannot be served", topology.Options{Policy: topology.Restricted}, 2,
			[]topology.Wish{{Hints: []topology.Hint{yes(0)}}, {Hints: []topology.Hint{}}}, answer{no(0), false}},
		{"one cannot be served on one node", topology.Options{Policy: topology.SingleNUMANode}, 2,
			[]topology.Wish{{Hints: []topology.Hint{yes(0)}}, {Hints: []topology.Hint{}}}, answer{no(), false}},
		{"two nodes are not one", topology.Options{Policy: topology.SingleNUMANode}, 4,
			[]topology.Wish{{Hints: []topology.Hint{yes(0, 1)}}}, answer{no(), false}},
		{"a machine of one node", topology.Options{Policy: topology.SingleNUMANode}, 1,
			[]topology.Wish{{Hints: []topology.Hint{yes(0)}}}, answer{yes(), true}},
		{"no nodes to decide on", topology.Options{Policy: topology.BestEffort}, 0,
			[]topology.Wish{{Hints: []topology.Hint{yes(0)}}}, answer{no(), true}},
		{"lowest ids", topology.Options{Policy: topology.BestEffort}, 4,
			[]topology.Wish{{Hints: []topology.Hint{yes(2, 3), yes(0, 3), yes(1, 2)}}}, answer{yes(1, 2), true}},
		{"lowest ids, far apart", topology.Options{Policy: topology.BestEffort}, 4,
			[]topology.Wish{{Hints: []topology.Hint{yes(0, 3), yes(2, 3)}}}, answer{yes(0, 3), true}},
		{"closest", topology.Options{Policy: topology.BestEffort, PreferClosest: true}, 4,
			[]topology.Wish{{Hints: []topology.Hint{yes(0, 3), yes(2, 3)}}}, answer{yes(2, 3), true}},
		{"as many as the neediest takes", topology.Options{Policy: topology.BestEffort}, 4,
			[]topology.Wish{{Hints: []topology.Hint{yes(2), no(0, 1, 2), no(0, 1)}},
				{Hints: []topology.Hint{yes(0, 1), no(0, 1, 2)}}}, answer{no(0, 1), true}},
		{"fewer than the neediest takes before more", topology.Options{Policy: topology.BestEffort}, 4,
			[]topology.Wish{{Hints: []topology.Hint{yes(3), no(0, 1, 2, 3)}},
				{Hints: []topology.Hint{yes(0, 1, 3), no(0, 1, 2, 3)}}, {Hints: []topology.Hint{no(3), no(0, 2, 3)}}},
			answer{no(0, 2, 3), true}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			hint, admit := topology.Merge(test.options, topologytest.UpTo(test.nodes), test.wishes)
			if diff := cmp.Diff(test.want, answer{hint, admit}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Every answer is that of looking at each way to choose one hint a wish.
func TestMergeIsTheBestOfAllWays(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 693))
	machines := [][]machine.Node{topologytest.UpTo(1), topologytest.UpTo(2), topologytest.UpTo(3), topologytest.UpTo(4),
		topologytest.UpTo(6), topologytest.Line(0, 8, 16, 17)}
	policies := []topology.Policy{topology.BestEffort, topology.Restricted, topology.SingleNUMANode}
	for i := range 15000 {
		o := topology.Options{Policy: policies[i%3], PreferClosest: i%2 == 1}
		on := machines[random.IntN(len(machines))]
		wishes := randomWishes(random, on)
		want, wantAdmit := topologytest.Reference(o, on, wishes)
		got, admit := topology.Merge(o, on, wishes)
		if got != want || admit != wantAdmit {
			t.Fatalf("%+v on %d nodes, %+v: got %+v %v, want %+v %v", o, len(on), wishes, got, admit, want, wantAdmit)
		}
	}
}

// randomWishes are as many as can be tried in every way within a moment.
func randomWishes(random *rand.Rand, on []machine.Node) []topology.Wish {
	var wishes []topology.Wish
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
func randomWish(random *rand.Rand, on []machine.Node) topology.Wish {
	switch random.IntN(10) {
	case 0:
		return topology.Wish{}
	case 1:
		return topology.Wish{Hints: []topology.Hint{}}
	case 2, 3, 4:
		w := topology.Wish{Hints: []topology.Hint{}}
		for range random.IntN(6) {
			w.Hints = append(w.Hints, topology.Hint{Nodes: randomNodes(random, on), Preferred: random.IntN(2) == 0})
		}
		return w
	}
	return enough(random, on)
}

func randomNodes(random *rand.Rand, on []machine.Node) topology.Nodes {
	var n topology.Nodes
	for _, node := range on {
		if random.IntN(2) == 0 {
			n |= topology.Of(node.ID)
		}
	}
	return n
}

func enough(random *rand.Rand, on []machine.Node) topology.Wish {
	free, need := make([]int, len(on)), 1+random.IntN(8)
	for i := range free {
		free[i] = random.IntN(5)
	}
	w, least := topology.Wish{Hints: []topology.Hint{}}, 1+random.IntN(len(on))
	for x := 1; x < 1<<len(on); x++ {
		var n topology.Nodes
		have := 0
		for i, node := range on {
			if x&(1<<i) != 0 {
				n, have = n|topology.Of(node.ID), have+free[i]
			}
		}
		if have >= need {
			w.Hints = append(w.Hints, topology.Hint{Nodes: n, Preferred: n.Len() <= least})
		}
	}
	return w
}

// A container on a large machine, with hints from six resources: the product has
// 2^96 ways at 16 nodes.
func BenchmarkMerge(b *testing.B) {
	for _, agree := range []bool{true, false} {
		for _, n := range []int{1, 2, 3, 4, 6, 8, 12, 16} {
			on, wishes := topologytest.UpTo(n), topologytest.Request(n, agree)
			for _, o := range []topology.Options{{Policy: topology.BestEffort},
				{Policy: topology.BestEffort, PreferClosest: true}, {Policy: topology.SingleNUMANode}} {
				b.Run(fmt.Sprintf("agree=%v/%s/closest=%v/nodes=%d", agree, o.Policy, o.PreferClosest, n),
					func(b *testing.B) {
						for b.Loop() {
							topology.Merge(o, on, wishes)
						}
					})
			}
		}
	}
}

// The same by looking at each way: as the kubelet does.
func BenchmarkReference(b *testing.B) {
	for _, n := range []int{1, 2, 3} {
		on, wishes := topologytest.UpTo(n), topologytest.Request(n, false)
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			for b.Loop() {
				topologytest.Reference(topology.Options{Policy: topology.BestEffort}, on, wishes)
			}
		})
	}
}
