package main

import (
	"context"
	"time"

	"github.com/berth-run/berth/bench/proc"
	"github.com/berth-run/berth/bench/side"
	"github.com/berth-run/berth/internal/base/retry"
)

// idleCost is the cost of the agent's process, which contains the runtime, while nothing happens. It omits the shims.
type idleCost struct {
	Pods       int     `json:"pods"`
	Seconds    float64 `json:"seconds"`
	CPUPercent float64 `json:"cpuPercentOfACore"`
	RSSMB      float64 `json:"rssMB"`
	PrivateMB  float64 `json:"privateMB"`
}

// settle is how long to wait after a start, until garbage collection and write-back have ended.
const settle = 15 * time.Second

// idle measures the agent's process while pods run and nothing happens.
func (b *bench) idle(ctx context.Context) error {
	c := idleCost{Pods: b.burst}
	if _, err := b.berth.Start(ctx, "idle", c.Pods, side.Shape{}, 0); err != nil {
		return err
	}
	if err := retry.Sleep(ctx, settle); err != nil {
		return err
	}
	pid := b.berth.PID()
	before, err := proc.CPU(pid)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := retry.Sleep(ctx, b.watch); err != nil {
		return err
	}
	after, err := proc.CPU(pid)
	if err != nil {
		return err
	}
	c.Seconds = time.Since(begin).Seconds()
	c.CPUPercent = (after.Own - before.Own).Seconds() / c.Seconds * 100
	if c.RSSMB, c.PrivateMB, err = proc.Memory(pid); err != nil {
		return err
	}
	b.results.Idle = c
	_, err = b.berth.Remove(ctx, "idle", c.Pods, 0)
	return err
}

func (c idleCost) text(p *page) {
	if c.Pods == 0 {
		return
	}
	p.line("\n## Idle, with %d running pods, over %.0f s\n", c.Pods, c.Seconds)
	p.line("The agent's process with the runtime in it, without the shims.\n")
	p.line("| what | measured | goal |")
	p.line("|---|---|---|")
	p.line("| CPU, %% of a core | %.2f | 0.20 |", c.CPUPercent)
	p.line("| RSS, MB | %.1f | 90 |", c.RSSMB)
	p.line("| of that in no file, MB | %.1f | 45 |", c.PrivateMB)
}
