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
	// CPUPercent is of all processes but the containers: agent with runtime, shim and holders.
	CPUPercent      float64 `json:"cpuPercentOfACore"`
	WorkloadPercent float64 `json:"workloadPercentOfACore"`
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
	b.results.Idle = nil
	for _, goal := range idleGoals {
		c, err := b.idleWith(ctx, goal.pods)
		if err != nil {
			return err
		}
		b.results.Idle = append(b.results.Idle, c)
	}
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
	ownBefore, workloadBefore, err := b.berth.Group().CPUs()
	if err != nil {
		return c, err
	}
	begin := time.Now()
	if err := retry.Sleep(ctx, b.watch); err != nil {
		return c, err
	}
	own, workload, err := b.berth.Group().CPUs()
	if err != nil {
		return c, err
	}
	c.Seconds = time.Since(begin).Seconds()
	c.CPUPercent = (own - ownBefore).Seconds() / c.Seconds * 100
	c.WorkloadPercent = (workload - workloadBefore).Seconds() / c.Seconds * 100
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
	p.line("\n## Agent, runtime, shim and holders with idle pods, over %.0f s\n", all[0].Seconds)
	p.line("| pods | CPU, %% of a core | goal | CPU of containers | PSS, MB | goal | agent's RSS, MB | in no file |")
	p.line("|---|---|---|---|---|---|---|---|")
	for i, c := range all {
		p.line("| %d | %.2f | %.2f | %.2f | %.1f | %.0f | %.1f | %.1f |", c.Pods, c.CPUPercent, idleGoals[i].cpu,
			c.WorkloadPercent, c.PSSMB, idleGoals[i].pss, c.RSSMB, c.PrivateMB)
	}
}
