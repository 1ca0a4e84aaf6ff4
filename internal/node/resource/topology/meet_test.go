package topology

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// meetPairs and meetCounts agree, also where the number of ways would overflow.
func TestInCommon(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 693))
	for _, all := range []Nodes{Of(0), Of(0, 1, 2), Of(0, 1, 2, 3, 4, 5, 6), Of(1, 5, 40, 63)} {
		for range 500 {
			lists := randomLists(random, all)
			pairs, counted := map[Nodes]bool{}, map[Nodes]bool{}
			met := []Nodes{all}
			for _, list := range lists {
				met = meetPairs(all, met, list)
			}
			for _, n := range met {
				pairs[n] = true
			}
			for _, n := range meetCounts(all, lists) {
				counted[n] = true
			}
			if diff := cmp.Diff(pairs, counted); diff != "" {
				t.Fatalf("%v: %s", lists, diff)
			}
		}
	}
}

func randomLists(random *rand.Rand, all Nodes) [][]Nodes {
	lists := make([][]Nodes, 1+random.IntN(40))
	for i := range lists {
		lists[i] = []Nodes{all}
		for range random.IntN(12) {
			lists[i] = append(lists[i], Nodes(random.Uint64()|random.Uint64())&all)
		}
	}
	return lists
}
