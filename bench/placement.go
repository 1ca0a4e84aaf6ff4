package main

import (
	"context"
	"fmt"

	"github.com/berth-run/berth/bench/placement"
)

// placement measures the choice of CPUs and NUMA nodes.
func (b *bench) placement(ctx context.Context) (err error) {
	b.results.Placement, err = placement.Measure(ctx)
	return err
}

func placementText(p *page, r placement.Results) {
	if len(r.Merge) == 0 {
		return
	}
	p.line("\n## One answer from the hints for CPUs, memory and four devices, in µs\n")
	p.line(
		"| NUMA nodes | hints | ways to choose | agreed | not agreed | not agreed, closest | single-numa-node | not " +
			"agreed, each way tried |")
	p.line("|---|---|---|---|---|---|---|---|")
	for _, m := range r.Merge {
		each := "-"
		if m.EachWay > 0 {
			each = fmt.Sprintf("%.1f", m.EachWay/1000)
		}
		p.line("| %d | %d | %.2g | %.1f | %.1f | %.1f | %.1f | %s |", m.Nodes, m.Hints, m.Ways, m.Agreed/1000,
			m.NotAgreed/1000, m.Closest/1000, m.SingleNode/1000, each)
	}
	p.line("\n## 170 of 512 CPUs while a third is held, and the hints for 16, in µs\n")
	p.line("| NUMA nodes | packed | full-pcpus-only | uncorecache | across NUMA | hints |")
	p.line("|---|---|---|---|---|---|")
	for _, a := range r.Allocate {
		p.line("| %d | %.0f | %.0f | %.0f | %.0f | %.0f |", a.Nodes, a.Packed/1000, a.Cores/1000, a.Caches/1000,
			a.Evenly/1000, a.Hints/1000)
	}
}
