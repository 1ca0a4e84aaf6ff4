package main

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-run/berth/bench/side"
)

// one compares the start of a pod with one container.
func (b *bench) one(ctx context.Context) (err error) {
	b.results.One, err = b.starts(ctx, 1)
	return err
}

// several compares the start of a pod with several containers, up to the last container.
func (b *bench) several(ctx context.Context) (err error) {
	b.results.Several, err = b.starts(ctx, b.containers)
	b.results.Several.Containers = b.containers
	return err
}

func (b *bench) starts(ctx context.Context, containers int) (comparison, error) {
	s := side.Shape{Containers: containers}
	return alternate(ctx, b.pods, way{b.berth, s, fmt.Sprintf("one-%d", containers)},
		way{b.floor, s, fmt.Sprintf("one-%d", containers)})
}

// way is one of the two ways to run a pod that alternate compares.
type way struct {
	side.Side
	side.Shape
	prefix string
}

// alternate starts pods one at a time in each way in turn, so that both ways run under the same conditions. The first
// pod of each way is a warm-up.
func alternate(ctx context.Context, n int, ours, floor way) (comparison, error) {
	var c comparison
	for i := range n + 1 {
		for _, w := range []struct {
			way
			times *[]time.Duration
		}{{ours, &c.berth}, {floor, &c.floor}} {
			name := side.PodName(w.prefix, i)
			took, err := w.Start(ctx, name, 1, w.Shape, 1)
			if err != nil {
				return c, err
			}
			if _, err := w.Remove(ctx, name, 1, 1); err != nil {
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

func (c comparison) row(p *page, what, goal string) {
	if c.Berth.N == 0 {
		return
	}
	p.line("| %s, n=%d | %.1f (%.1f, %.1f) | %.1f (%.1f, %.1f) | **%.2f** | %s |", what, c.Berth.N,
		c.Berth.P50, c.Berth.Min, c.Berth.P90, c.Floor.P50, c.Floor.Min, c.Floor.P90, c.Ratio, goal)
}
