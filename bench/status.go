package main

import (
	"context"
	"fmt"

	"github.com/berth-run/berth/bench/statusrate"
)

// statusRates has the rates of status changes that a real API server accepts.
type statusRates struct {
	Pods int          `json:"pods"`
	Rows []statusRate `json:"rows"`
}

// statusRate is one way to write statuses.
type statusRate struct {
	InFlight int     `json:"inFlight"` // pods written at once; 0: one after the other, and each is read first
	Changes  int     `json:"changes"`
	Rate     float64 `json:"changesPerSecond"`
	Requests float64 `json:"requestsPerChange"`
	CPU      float64 `json:"cpuMsPerChange"`
	Seen     summary `json:"seenMs"` // from the change to its event in a watch, all pods changing at once
}

// statuses measures how fast statuses of pods reach a real API server, which runs on the same CPUs as bench.
func (b *bench) statuses(ctx context.Context) error {
	rates, err := statusrate.Measure(ctx, b.rounds, 0, 1, 4, 8, 16, 32, 64)
	if err != nil {
		return err
	}
	var rows []statusRate
	for _, r := range rates {
		n := float64(len(r.Seen))
		rows = append(rows, statusRate{
			InFlight: r.InFlight, Changes: len(r.Seen), Rate: n / r.Took.Seconds(), Requests: float64(r.Requests) / n,
			CPU: r.CPU.Seconds() * 1000 / n, Seen: summarise(r.Seen),
		})
	}
	b.results.Statuses = statusRates{Pods: statusrate.Pods, Rows: rows}
	return nil
}

func (s statusRates) text(p *page) {
	if len(s.Rows) == 0 {
		return
	}
	p.line("\n## Statuses of %d pods that change at once, to a real API server on the same CPUs\n", s.Pods)
	p.line(
		"| pods in flight | changes a second (goal 100) | requests a change | CPU of the writer and its watch, ms a " +
			"change | seen in a watch p50, p99, ms |")
	p.line("|---|---|---|---|---|")
	for _, r := range s.Rows {
		way := fmt.Sprint(r.InFlight)
		if r.InFlight == 0 {
			way = "one after the other, each read before"
		}
		p.line("| %s | %.0f | %.2f | %.2f | %.0f, %.0f |", way, r.Rate, r.Requests, r.CPU, r.Seen.P50, r.Seen.P99)
	}
}
