package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// best finds the first of the most even distributions among all.
func TestBestDistribution(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 2902))
	for range 4000 {
		d := distribution{size: 1 + random.IntN(2), nodes: make([]int, 1+random.IntN(6))}
		free := 1 + random.IntN(20)
		for range d.nodes {
			d.free = append(d.free, d.size*random.IntN(free))
		}
		d.need = d.size * (1 + random.IntN(3*free))
		for k := 1; k <= len(d.nodes); k++ {
			want, wantFound := everyWay(d, k)
			got, found := d.best(k)
			if diff := cmp.Diff(want, got); diff != "" || found != wantFound {
				t.Fatalf("%d of %v from %d nodes, in portions of %d: %s", d.need, d.free, k, d.size, diff)
			}
		}
	}
}

func everyWay(d distribution, k int) ([]int, bool) {
	var best []int
	least := math.Inf(1)
	keep := func(take []int) {
		s := search{distribution: &d}
		for i, n := range take {
			s.left = append(s.left, d.free[i]-n)
		}
		if balance := s.deviation(); balance < least {
			best, least = take, balance
		}
	}
	each := d.need / k / d.size * d.size
	combinations(len(d.nodes), k, func(chosen []int) bool {
		take, more := make([]int, len(d.nodes)), []int(nil)
		for _, i := range chosen {
			if take[i] = each; d.free[i] < each {
				return true
			}
			if d.free[i]-each >= d.size {
				more = append(more, i)
			}
		}
		over := d.need - k*each
		if over == 0 {
			keep(take)
		}
		for n := len(more); over > 0 && n > 0; n-- {
			combinations(len(more), n, func(from []int) bool {
				if took, ok := inTurn(d, take, more, from, over); ok {
					keep(took)
				}
				return true
			})
		}
		return true
	})
	return best, best != nil
}

func inTurn(d distribution, take, more, from []int, over int) ([]int, bool) {
	took := append([]int(nil), take...)
	for round := 0; over > 0 && round < d.need; round++ {
		for _, f := range from {
			if i := more[f]; over > 0 && d.free[i]-took[i] >= d.size {
				took[i] += d.size
				over -= d.size
			}
		}
	}
	return took, over == 0
}
