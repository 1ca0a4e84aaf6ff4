package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth/bench/side"
	"github.com/berth-run/berth/bench/stock"
)

// besideStock compares Berth with the same CRI calls to the machine's containerd, which is the floor there.
type besideStock struct {
	One     comparison `json:"onePod"`
	Several comparison `json:"severalContainers"`
	Start   burst      `json:"start"`
	End     burst      `json:"end"`
}

// stock measures a pod, a pod of several containers and a burst.
func (b *bench) stock(ctx context.Context) (err error) {
	s, err := stock.Start(ctx, side.Beside(b.berth.Dirs, "s"))
	if err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r := &b.results.Stock
	for _, one := range []struct {
		*comparison
		containers int
	}{{&r.One, 1}, {&r.Several, b.containers}} {
		shape, prefix := side.Shape{Containers: one.containers}, fmt.Sprintf("stock-%d", one.containers)
		*one.comparison, err = alternate(ctx, b.pods, way{b.berth, shape, prefix}, way{s.Floor, shape, prefix}, nil)
		if err != nil {
			return err
		}
		one.Containers = one.containers
	}
	r.Start, r.End, err = b.burstsOf(ctx, s.Floor, b.burst, b.concurrency, nil)
	return err
}

func (c besideStock) text(p *page) {
	if c.One.Berth.N == 0 {
		return
	}
	p.line("\n## Beside stock containerd: a shim, a pause container and CNI plugins for each pod, in ms\n")
	p.line("| what | Berth p50 (min, p99) | CRI calls to containerd p50 (min, p99) | ratio | goal |")
	p.line("|---|---|---|---|---|")
	c.One.row(p, "one pod of one container")
	c.Several.row(p, fmt.Sprintf("one pod of %d containers, to the last one", c.Several.Containers))
	concurrency := best(c.Start.Floor)
	c.Start.comparison().row(p,
		fmt.Sprintf("burst of %d pods, to the last one (containerd %d at a time)", c.Start.Pods, concurrency))
	c.End.comparison().row(p, fmt.Sprintf("termination of %d pods", c.End.Pods))
	ours, theirs := c.Start.podCPU(c.Start.Berth), c.Start.podCPU(c.Start.Floor[concurrency])
	p.line("| CPU of a pod of the burst, mean | %.1f | %.1f | **%.2f** | - |", ours, theirs, ratio(ours, theirs))
}
