package cpu

import (
	"fmt"
	"testing"

	"k8s.io/utils/cpuset"
)

// 512 CPUs on 1 to 16 NUMA nodes, a core in three held.
func largest(nodes int) Pool {
	m := build(max(1, nodes/4), min(4, nodes), 2, 128/nodes, 2)
	p := Pool{Machine: m, Reserved: cpuset.New(0, 256)}
	for c := 2; c < 256; c += 3 {
		p.Held = p.Held.Union(cpuset.New(c, c+256))
	}
	return p
}

func BenchmarkAllocate(b *testing.B) {
	options := map[string]Options{
		"packed": {}, "full-pcpus-only": {FullPCPUsOnly: true}, "across-cores": {DistributeAcrossCores: true},
		"uncorecache": {PreferAlignByUncoreCache: true}, "across-numa": {DistributeAcrossNUMA: true},
	}
	for name, o := range options {
		for _, nodes := range []int{1, 2, 4, 8, 16} {
			for _, n := range []int{4, 170} {
				b.Run(fmt.Sprintf("%s/nodes=%d/n=%d", name, nodes, n), func(b *testing.B) {
					p := largest(nodes)
					p.Options = o
					for b.Loop() {
						if _, err := Allocate(p, n, cpuset.New(), 0); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

func BenchmarkHints(b *testing.B) {
	for _, nodes := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			p := largest(nodes)
			for b.Loop() {
				Hints(p, 16, cpuset.New())
			}
		})
	}
}
