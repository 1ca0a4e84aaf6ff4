package cpu

import (
	"fmt"
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/resource/cpu/cputest"
)

func large(nodes int) Pool {
	return Pool{Machine: cputest.Large(nodes), Reserved: cpuset.New(0, 256), Held: cputest.Used()}
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
					p := large(nodes)
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
			p := large(nodes)
			for b.Loop() {
				Hints(p, 16, cpuset.New())
			}
		})
	}
}
