package placement

import (
	"context"
	"fmt"
	"math"
	"time"

	"k8s.io/utils/cpuset"

	allocator "github.com/berth-run/berth/internal/node/resource/cpu"
	"github.com/berth-run/berth/internal/node/resource/cpu/cputest"
	"github.com/berth-run/berth/internal/node/resource/topology"
	"github.com/berth-run/berth/internal/node/resource/topology/topologytest"
)

// Results are the times, in nanoseconds, to choose the CPUs and NUMA nodes of a container. It has a row for each number
// of NUMA nodes.
type Results struct {
	Merge    []MergeCost    `json:"merge"`
	Allocate []AllocateCost `json:"allocate"`
}

// MergeCost is the time to merge hints for CPUs, memory and four devices.
type MergeCost struct {
	Nodes int `json:"nodes"`
	// Hints is the number of hints of all six resources. Ways is the number of ways to choose one hint for each
	// resource.
	Hints      int     `json:"hints"`
	Ways       float64 `json:"ways"`
	Agreed     float64 `json:"agreed"`
	NotAgreed  float64 `json:"notAgreed"`
	Closest    float64 `json:"notAgreedClosest"`
	SingleNode float64 `json:"singleNode"`
	// EachWay is the time for NotAgreed with an algorithm that tries every way. It is 0 if there are more than
	// mostWays.
	EachWay float64 `json:"eachWay,omitempty"`
}

// AllocateCost is the time to allocate 170 of 512 CPUs, and to compute the hints for 16 CPUs. A third of the 512 CPUs
// is allocated already.
type AllocateCost struct {
	Nodes  int     `json:"nodes"`
	Packed float64 `json:"packed"`
	Cores  float64 `json:"fullPCPUsOnly"`
	Caches float64 `json:"uncoreCache"`
	Evenly float64 `json:"acrossNUMA"`
	Hints  float64 `json:"hints"`
}

// mostWays bounds the ways that the measurement tries one by one, which needs about a minute.
const mostWays = 1 << 24

// Measure measures all rows. It returns the rows so far if the context ends.
func Measure(ctx context.Context) (r Results, err error) {
	for _, nodes := range []int{1, 2, 4, 8, 12, 16} {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		r.Merge = append(r.Merge, measureMerge(nodes))
	}
	for _, nodes := range []int{1, 2, 4, 8, 16} {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		row, err := measureAllocate(nodes)
		if err != nil {
			return r, fmt.Errorf("allocate on %d nodes: %w", nodes, err)
		}
		r.Allocate = append(r.Allocate, row)
	}
	return r, nil
}

func measureMerge(nodes int) MergeCost {
	on := topologytest.UpTo(nodes)
	agreed, not := topologytest.Request(nodes, true), topologytest.Request(nodes, false)
	merge := func(o topology.Options, wishes []topology.Offer) float64 {
		return perCall(func() { topology.Merge(o, on, wishes) })
	}
	bestEffort := topology.Options{Policy: topology.BestEffort}
	row := MergeCost{Nodes: nodes, Ways: 1,
		Agreed: merge(bestEffort, agreed), NotAgreed: merge(bestEffort, not),
		Closest:    merge(topology.Options{Policy: topology.BestEffort, PreferClosest: true}, not),
		SingleNode: merge(topology.Options{Policy: topology.SingleNUMANode}, not),
	}
	for _, w := range not {
		row.Hints += len(w.Hints)
		row.Ways *= float64(len(w.Hints))
	}
	if row.Ways <= mostWays {
		row.EachWay = perCall(func() { topologytest.Reference(bestEffort, on, not) })
	}
	return row
}

func measureAllocate(nodes int) (AllocateCost, error) {
	pool := allocator.Pool{Machine: cputest.Large(nodes), Reserved: cpuset.New(0, 256), Held: cputest.Used()}
	row := AllocateCost{Nodes: nodes}
	for _, with := range []struct {
		cost    *float64
		options allocator.Options
	}{
		{&row.Packed, allocator.Options{}},
		{&row.Cores, allocator.Options{FullPCPUsOnly: true}},
		{&row.Caches, allocator.Options{PreferAlignByUncoreCache: true}},
		{&row.Evenly, allocator.Options{DistributeAcrossNUMA: true}},
	} {
		pool.Options = with.options
		var failed error
		*with.cost = perCall(func() {
			if _, err := allocator.Allocate(pool, 170, cpuset.New(), 0); err != nil {
				failed = err
			}
		})
		if failed != nil {
			return row, failed
		}
	}
	pool.Options = allocator.Options{}
	row.Hints = perCall(func() { allocator.Hints(pool, 16, cpuset.New()) })
	return row, nil
}

// perCall is the time of a call in nanoseconds. It is the least mean of five rounds, because other programs on the
// machine can only make a round slower.
func perCall(f func()) float64 {
	const round = 50 * time.Millisecond
	least := math.Inf(1)
	for range 5 {
		began, calls := time.Now(), 0
		for time.Since(began) < round {
			f()
			calls++
		}
		least = min(least, float64(time.Since(began).Nanoseconds())/float64(calls))
	}
	return math.Round(least)
}
