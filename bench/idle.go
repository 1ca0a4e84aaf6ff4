package main

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-run/berth/bench/proc"
	"github.com/berth-run/berth/bench/side"
	"github.com/berth-run/berth/internal/base/retry"
)

// idleCost is the cost of a node's idle pods.
type idleCost struct {
	Pods    int     `json:"pods"`
	Seconds float64 `json:"seconds"`
	// CPUPercent is of all processes: agent with runtime, shim and holders, and the sleeping containers.
	CPUPercent float64 `json:"cpuPercentOfACore"`
	// PSSMB is of all processes but the containers. RSSMB and PrivateMB are of the agent's process.
	PSSMB     float64 `json:"pssMB"`
	RSSMB     float64 `json:"rssMB"`
	PrivateMB float64 `json:"privateMB"`
}

// settle is how long to wait after a start, until garbage collection and write-back have ended.
const settle = 15 * time.Second

// idleGoals are the goals by the number of pods: CPU in % of a core, and PSS in MB.
var idleGoals = []struct {
	pods     int
	cpu, pss float64
}{{30, 0.1, 60}, {100, 0.15, 80}, {250, 0.3, 120}}

// idle measures CPU and memory while pods run and nothing happens.
func (b *bench) idle(ctx context.Context) error {
	var all []idleCost
	for _, goal := range idleGoals {
		c, err := b.idleWith(ctx, goal.pods)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	b.results.Idle = all
	return nil
}

func (b *bench) idleWith(ctx context.Context, pods int) (c idleCost, err error) {
	c.Pods = pods
	prefix := fmt.Sprintf("idle-%d", pods)
	if _, err := b.berth.Start(ctx, prefix, pods, side.Shape{}, 0); err != nil {
		return c, err
	}
	if err := retry.Sleep(ctx, settle); err != nil {
		return c, err
	}
	before, err := b.berth.Group().CPU()
	if err != nil {
		return c, err
	}
	begin := time.Now()
	if err := retry.Sleep(ctx, b.watch); err != nil {
		return c, err
	}
	after, err := b.berth.Group().CPU()
	if err != nil {
		return c, err
	}
	c.Seconds = time.Since(begin).Seconds()
	c.CPUPercent = (after - before).Seconds() / c.Seconds * 100
	if c.RSSMB, c.PrivateMB, err = proc.Memory(b.berth.PID()); err != nil {
		return c, err
	}
	if c.PSSMB, err = b.berth.Group().PSS(); err != nil {
		return c, err
	}
	_, err = b.berth.Remove(ctx, prefix, pods, 0)
	return c, err
}

func idleText(p *page, all []idleCost) {
	if len(all) == 0 {
		return
	}
	p.line("\n## Idle, over %.0f s\n", all[0].Seconds)
	p.line("CPU is of all processes together. PSS is of all but the containers: agent with runtime, shim, holders.\n")
	p.line("| pods | CPU, %% of a core | goal | PSS, MB | goal | of that the agent: RSS, MB | in no file, MB |")
	p.line("|---|---|---|---|---|---|---|")
	for i, c := range all {
		p.line("| %d | %.2f | %.2f | %.1f | %.0f | %.1f | %.1f |", c.Pods, c.CPUPercent, idleGoals[i].cpu, c.PSSMB,
			idleGoals[i].pss, c.RSSMB, c.PrivateMB)
	}
}
