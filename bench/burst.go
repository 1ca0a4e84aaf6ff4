package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berth-run/berth/bench/proc"
	"github.com/berth-run/berth/bench/side"
)

// burst is the time that many pods need together to start, or to end.
type burst struct {
	Pods  int             `json:"pods"`
	Berth summary         `json:"berth"`
	Floor map[int]summary `json:"floor"` // by concurrency
	Best  int             `json:"bestConcurrency"`
	Ratio float64         `json:"ratio"`
	// BerthCPU and FloorCPU are the CPU seconds of each side's process, an element for each burst.
	BerthCPU []float64 `json:"berthCPUSeconds"`
	FloorCPU []float64 `json:"floorCPUSeconds"`

	berth []time.Duration
	floor map[int][]time.Duration
}

// bursts compares the bursts of Berth with the bursts of the floor. The floor runs at several concurrencies, and its
// best one counts.
func (b *bench) bursts(ctx context.Context) error {
	up := burst{Pods: b.burst, floor: map[int][]time.Duration{}}
	down := burst{Pods: b.burst, floor: map[int][]time.Duration{}}
	for round := range b.rounds {
		prefix := fmt.Sprintf("burst-%d", round)
		if err := oneBurst(ctx, b.berth, prefix, 0, &up, &down); err != nil {
			return err
		}
		for _, concurrency := range b.concurrency {
			if err := oneBurst(ctx, b.floor, fmt.Sprintf("%s-%d", prefix, concurrency), concurrency, &up,
				&down); err != nil {
				return err
			}
		}
	}
	b.results.Burst, b.results.Termination = up.summarised(), down.summarised()
	return nil
}

// oneBurst starts and removes pods on one side. The concurrency 0 stands for Berth, which chooses its own.
func oneBurst(ctx context.Context, s side.Side, prefix string, concurrency int, up, down *burst) error {
	for _, half := range []struct {
		*burst
		do func() (time.Duration, error)
	}{
		{up, func() (time.Duration, error) { return s.Start(ctx, prefix, up.Pods, side.Shape{}, concurrency) }},
		{down, func() (time.Duration, error) { return s.Remove(ctx, prefix, up.Pods, concurrency) }},
	} {
		before, err := proc.CPU(s.Host().PID())
		if err != nil {
			return err
		}
		took, err := half.do()
		if err != nil {
			return err
		}
		after, err := proc.CPU(s.Host().PID())
		if err != nil {
			return err
		}
		if used := (after.Own - before.Own).Seconds(); concurrency == 0 {
			half.berth, half.BerthCPU = append(half.berth, took), append(half.BerthCPU, used)
		} else {
			half.floor[concurrency], half.FloorCPU = append(half.floor[concurrency], took), append(half.FloorCPU, used)
		}
	}
	return nil
}

func (b burst) summarised() burst {
	b.Berth, b.Floor = summarise(b.berth), map[int]summary{}
	for _, concurrency := range slices.Sorted(maps.Keys(b.floor)) {
		s := summarise(b.floor[concurrency])
		b.Floor[concurrency] = s
		if best, ok := b.Floor[b.Best]; !ok || s.P50 < best.P50 {
			b.Best = concurrency
		}
	}
	b.Ratio = ratio(b.Berth.P50, b.Floor[b.Best].P50)
	return b
}

func (b burst) row(p *page, what, goal string) {
	comparison{Berth: b.Berth, Floor: b.Floor[b.Best], Ratio: b.Ratio}.
		row(p, fmt.Sprintf("%s (floor at its best concurrency, %d)", what, b.Best), goal)
}

// burstDetails prints the floor's times at each concurrency, for start and end, and the CPU time of both sides.
func burstDetails(p *page, up, down burst) {
	p.line("\nThe floor's burst at each concurrency, p50 in ms:\n")
	p.line("| concurrency | start | termination |")
	p.line("|---|---|---|")
	for _, c := range slices.Sorted(maps.Keys(up.Floor)) {
		p.line("| %d | %.0f | %.0f |", c, up.Floor[c].P50, down.Floor[c].P50)
	}
	p.line(
		"\nCPU time of the process, agent and runtime or runtime alone, for a burst: %.2f s and %.2f s to start it, "+
			"%.2f s and %.2f s to end it (means).",
		mean(up.BerthCPU), mean(up.FloorCPU), mean(down.BerthCPU), mean(down.FloorCPU))
}
