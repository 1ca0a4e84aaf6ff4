package main

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-run/berth/bench/side"
)

// one compares the start of a pod with one container.
func (b *bench) one(ctx context.Context) (err error) {
	s := side.Shape{Containers: 1}
	b.results.One, err = alternate(ctx, b.pods,
		way{b.berth, s, "one"}, way{b.floor, s, "one"}, &way{b.bare, s, "bare"})
	if err != nil {
		return err
	}
	var creates []time.Duration
	for i := range b.pods {
		took, err := b.bare.Create(ctx, side.PodName("create", i))
		if err != nil {
			return err
		}
		creates = append(creates, took)
	}
	b.results.Create = summarise(creates)
	return nil
}

// several compares the start of a pod with several containers, up to the last container. For runc alone it is the start
// of one container.
func (b *bench) several(ctx context.Context) (err error) {
	s := side.Shape{Containers: b.containers}
	b.results.Several, err = alternate(ctx, b.pods,
		way{b.berth, s, "several"}, way{b.floor, s, "several"}, &way{b.bare, s, "bare-one"})
	b.results.Several.Containers = b.containers
	return err
}

// way is one of the ways to run a pod that alternate compares.
type way struct {
	side.Side
	side.Shape
	prefix string
}

// start starts and removes a pod of this way, and returns the time of its start.
func (w way) start(ctx context.Context, i int) (time.Duration, error) {
	name := side.PodName(w.prefix, i)
	took, err := w.Start(ctx, name, 1, w.Shape, 1)
	if err != nil {
		return 0, err
	}
	_, err = w.Remove(ctx, name, 1, 1)
	return took, err
}

// alternate starts pods one at a time in each way in turn, so that all ways run under the same conditions. The first
// pod of each way is a warm-up. bare may be nil.
func alternate(ctx context.Context, n int, ours, floor way, bare *way) (comparison, error) {
	var c comparison
	for i := range n + 1 {
		for _, w := range []struct {
			*way
			times *[]time.Duration
		}{{&ours, &c.berth}, {&floor, &c.floor}, {bare, &c.bare}} {
			if w.way == nil {
				continue
			}
			took, err := w.start(ctx, i)
			if err != nil {
				return c, err
			}
			if i > 0 {
				*w.times = append(*w.times, took)
			}
		}
	}
	c.summarise()
	return c, nil
}

// row is a row of a table that compares with the floor and has no goal.
func (c comparison) row(p *page, what string) {
	if c.Berth.N == 0 {
		return
	}
	p.line("| %s, n=%d | %.1f (%.1f, %.1f) | %.1f (%.1f, %.1f) | **%.2f** | - |", what, c.Berth.N,
		c.Berth.P50, c.Berth.Min, c.Berth.P99, c.Floor.P50, c.Floor.Min, c.Floor.P99, c.Ratio)
}

// startHeader begins a table of bareRow.
func startHeader(p *page) {
	p.line("| what | Berth p50 (min, p99) | CRI calls p50 (min, p99) | ratio | runc alone p50 (min, p99) | ratio " +
		"| goal |")
	p.line("|---|---|---|---|---|---|---|")
}

// bareRow is a row of a table that compares with runc alone too. goal applies to the ratio to runc.
func (c comparison) bareRow(p *page, what, goal string) {
	if c.Berth.N == 0 {
		return
	}
	cell := func(s summary) string { return fmt.Sprintf("%.1f (%.1f, %.1f)", s.P50, s.Min, s.P99) }
	p.line("| %s, n=%d | %s | %s | %.2f | %s | **%.2f** | %s |", what, c.Berth.N,
		cell(c.Berth), cell(c.Floor), c.Ratio, cell(c.Bare), c.BareRatio, goal)
}
