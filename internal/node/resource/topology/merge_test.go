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

func preferred(ids ...int) topology.Hint {
	return topology.Hint{Nodes: topology.Of(ids...), Preferred: true}
}
func possible(ids ...int) topology.Hint { return topology.Hint{Nodes: topology.Of(ids...)} }

func TestMerge(t *testing.T) {
	type answer struct {
		Hint  topology.Hint
		Admit bool
	}
	tests := []struct {
		name    string
		options topology.Options
		nodes   int
		offers  []topology.Offer
		want    answer
	}{
		{"none ignores hints", topology.Options{Policy: topology.None}, 2, []topology.Offer{{Hints: []topology.Hint{}}},
			answer{topology.Hint{}, true}},
		{"the default is none", topology.Options{}, 2, []topology.Offer{{Hints: []topology.Hint{preferred(0)}}},
			answer{topology.Hint{}, true}},
		{"all accept any nodes", topology.Options{Policy: topology.Restricted}, 2, []topology.Offer{{}, {}},
			answer{preferred(0, 1), true}},
		{"all accept any nodes, single node", topology.Options{Policy: topology.SingleNUMANode}, 2,
			[]topology.Offer{{}, {}},
			answer{preferred(), true}},
		{"one node preferred by all", topology.Options{Policy: topology.SingleNUMANode}, 2,
			[]topology.Offer{{Hints: []topology.Hint{preferred(0), preferred(1), possible(0, 1)}},
				{Hints: []topology.Hint{preferred(1), possible(0, 1)}}}, answer{preferred(1), true}},
		{"different preferences", topology.Options{Policy: topology.Restricted}, 2,
			[]topology.Offer{{Hints: []topology.Hint{preferred(0), possible(0, 1)}},
				{Hints: []topology.Hint{preferred(1), possible(0, 1)}}},
			answer{possible(0), false}},
		{"different preferences, best effort", topology.Options{Policy: topology.BestEffort}, 2,
			[]topology.Offer{{Hints: []topology.Hint{preferred(0), possible(0, 1)}},
				{Hints: []topology.Hint{preferred(1), possible(0, 1)}}},
			answer{possible(0), true}},
		{"nothing in common", topology.Options{Policy: topology.BestEffort}, 2,
			[]topology.Offer{{Hints: []topology.Hint{preferred(0)}}, {Hints: []topology.Hint{preferred(1)}}},
			answer{possible(0, 1), true}},
		{"one cannot be served", topology.Options{Policy: topology.Restricted}, 2,
			[]topology.Offer{{Hints: []topology.Hint{preferred(0)}}, {Hints: []topology.Hint{}}},
			answer{possible(0), false}},
		{"one cannot be served on a single node", topology.Options{Policy: topology.SingleNUMANode}, 2,
			[]topology.Offer{{Hints: []topology.Hint{preferred(0)}}, {Hints: []topology.Hint{}}},
			answer{possible(), false}},
		{"two nodes under single-numa-node", topology.Options{Policy: topology.SingleNUMANode}, 4,
			[]topology.Offer{{Hints: []topology.Hint{preferred(0, 1)}}}, answer{possible(), false}},
		{"a machine of one node", topology.Options{Policy: topology.SingleNUMANode}, 1,
			[]topology.Offer{{Hints: []topology.Hint{preferred(0)}}}, answer{preferred(), true}},
		{"a machine without nodes", topology.Options{Policy: topology.BestEffort}, 0,
			[]topology.Offer{{Hints: []topology.Hint{preferred(0)}}}, answer{possible(), true}},
		{"lowest ids", topology.Options{Policy: topology.BestEffort}, 4,
			[]topology.Offer{{Hints: []topology.Hint{preferred(2, 3), preferred(0, 3), preferred(1, 2)}}},
			answer{preferred(1, 2), true}},
		{"lowest ids, far apart", topology.Options{Policy: topology.BestEffort}, 4,
			[]topology.Offer{{Hints: []topology.Hint{preferred(0, 3), preferred(2, 3)}}},
			answer{preferred(0, 3), true}},
		{"closest", topology.Options{Policy: topology.BestEffort, PreferClosest: true}, 4,
			[]topology.Offer{{Hints: []topology.Hint{preferred(0, 3), preferred(2, 3)}}},
			answer{preferred(2, 3), true}},
		{"as many nodes as the most demanding offer needs", topology.Options{Policy: topology.BestEffort}, 4,
			[]topology.Offer{{Hints: []topology.Hint{preferred(2), possible(0, 1, 2), possible(0, 1)}},
				{Hints: []topology.Hint{preferred(0, 1), possible(0, 1, 2)}}}, answer{possible(0, 1), true}},
		{"fewer nodes than needed before more", topology.Options{Policy: topology.BestEffort}, 4,
			[]topology.Offer{{Hints: []topology.Hint{preferred(3), possible(0, 1, 2, 3)}},
				{Hints: []topology.Hint{preferred(0, 1, 3), possible(0, 1, 2, 3)}},
				{Hints: []topology.Hint{possible(3), possible(0, 2, 3)}}},
			answer{possible(0, 2, 3), true}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			hint, admit := topology.Merge(test.options, topologytest.UpTo(test.nodes), test.offers)
			if diff := cmp.Diff(test.want, answer{hint, admit}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Every answer equals the answer of a search over every combination of one hint for each offer.
func TestMergeEqualsReference(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 693))
	machines := [][]machine.Node{topologytest.UpTo(1), topologytest.UpTo(2), topologytest.UpTo(3), topologytest.UpTo(4),
		topologytest.UpTo(6), topologytest.Line(0, 8, 16, 17)}
	policies := []topology.Policy{topology.BestEffort, topology.Restricted, topology.SingleNUMANode}
	for i := range 15000 {
		o := topology.Options{Policy: policies[i%3], PreferClosest: i%2 == 1}
		on := machines[random.IntN(len(machines))]
		offers := randomOfferes(random, on)
		want, wantAdmit := topologytest.Reference(o, on, offers)
		got, admit := topology.Merge(o, on, offers)
		if got != want || admit != wantAdmit {
			t.Fatalf("%+v on %d nodes, %+v: got %+v %v, want %+v %v", o, len(on), offers, got, admit, want, wantAdmit)
		}
	}
}

// randomOffers returns few enough offers that the test can check every combination quickly.
func randomOfferes(random *rand.Rand, on []machine.Node) []topology.Offer {
	var offers []topology.Offer
	ways := 1
	for range random.IntN(6) {
		w := randomOffer(random, on)
		if ways *= max(1, len(w.Hints)); ways > 20000 {
			break
		}
		offers = append(offers, w)
	}
	return offers
}

// randomOffer returns random hints, or hints as allocators produce them: all sets that have enough, the smallest
// preferred.
func randomOffer(random *rand.Rand, on []machine.Node) topology.Offer {
	switch random.IntN(10) {
	case 0:
		return topology.Offer{}
	case 1:
		return topology.Offer{Hints: []topology.Hint{}}
	case 2, 3, 4:
		w := topology.Offer{Hints: []topology.Hint{}}
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

func enough(random *rand.Rand, on []machine.Node) topology.Offer {
	free, need := make([]int, len(on)), 1+random.IntN(8)
	for i := range free {
		free[i] = random.IntN(5)
	}
	w, least := topology.Offer{Hints: []topology.Hint{}}, 1+random.IntN(len(on))
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

// A container on a large machine with hints from six resources. At 16 nodes there are 2^96 combinations.
func BenchmarkMerge(b *testing.B) {
	for _, agree := range []bool{true, false} {
		for _, n := range []int{1, 2, 3, 4, 6, 8, 12, 16} {
			on, offers := topologytest.UpTo(n), topologytest.Request(n, agree)
			for _, o := range []topology.Options{{Policy: topology.BestEffort},
				{Policy: topology.BestEffort, PreferClosest: true}, {Policy: topology.SingleNUMANode}} {
				b.Run(fmt.Sprintf("agree=%v/%s/closest=%v/nodes=%d", agree, o.Policy, o.PreferClosest, n),
					func(b *testing.B) {
						for b.Loop() {
							topology.Merge(o, on, offers)
						}
					})
			}
		}
	}
}

// The same with the kubelet's method, which tries every combination.
func BenchmarkReference(b *testing.B) {
	for _, n := range []int{1, 2, 3} {
		on, offers := topologytest.UpTo(n), topologytest.Request(n, false)
		b.Run(fmt.Sprintf("nodes=%d", n), func(b *testing.B) {
			for b.Loop() {
				topologytest.Reference(topology.Options{Policy: topology.BestEffort}, on, offers)
			}
		})
	}
}
