package main

import (
	"context"
	"os"

	"github.com/berth-run/berth/bench/scale"
	"github.com/berth-run/berth/bench/side"
)

// scaleCost is the cost of changes beside many pods that do not change.
type scaleCost struct {
	Changes int        `json:"changes"`
	Seconds float64    `json:"idleSeconds"`
	Rows    []scaleRow `json:"rows"`
}

// scaleRow is the result for a number of pods.
type scaleRow struct {
	Pods      int     `json:"pods"`
	Idle      float64 `json:"idlePercentOfACore"`
	RSSMB     float64 `json:"rssMB"`
	PrivateMB float64 `json:"privateMB"`
	Start     summary `json:"startMs"`
	Exit      summary `json:"exitMs"`
	StartCPU  float64 `json:"startCPUMs"`
	ExitCPU   float64 `json:"exitCPUMs"`
}

// scale measures an agent with many pods on the fake runtime.
func (b *bench) scale(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "bs") // short: unix sockets lie below it
	if err != nil {
		return err
	}
	rows, err := scale.Measure(ctx, scale.Options{
		Dir: dir, Binary: side.Binary, Sizes: b.sizes, Changes: b.pods, Idle: b.watch,
	})
	if err != nil {
		return err
	}
	c := scaleCost{Changes: b.pods, Seconds: b.watch.Seconds()}
	for _, r := range rows {
		c.Rows = append(c.Rows, scaleRow{
			Pods: r.Pods, Idle: r.Idle * 100, RSSMB: r.RSS, PrivateMB: r.Private, Start: summarise(r.Starts),
			Exit: summarise(r.Exits), StartCPU: r.StartCPU.Seconds() * 1000, ExitCPU: r.ExitCPU.Seconds() * 1000,
		})
	}
	b.results.Scale = c
	return os.RemoveAll(dir)
}

func (c scaleCost) text(p *page) {
	if len(c.Rows) == 0 {
		return
	}
	p.line("\n## One agent with many pods on the fake runtime, which do not change, and %d changes of others\n",
		c.Changes)
	p.line("Times in ms, p50 (p99). CPU is the agent's for one change. Idle is over %.0f s.\n", c.Seconds)
	p.line("| pods | idle, %% of a core | RSS, MB | of that in no file, MB | manifest to StartContainer | CPU, ms | " +
		"exit to the next CreateContainer | CPU, ms |")
	p.line("|---|---|---|---|---|---|---|---|")
	for _, r := range c.Rows {
		p.line("| %d | %.2f | %.1f | %.1f | %.1f (%.1f) | %.1f | %.1f (%.1f) | %.1f |", r.Pods, r.Idle, r.RSSMB,
			r.PrivateMB, r.Start.P50, r.Start.P99, r.StartCPU, r.Exit.P50, r.Exit.P99, r.ExitCPU)
	}
}
