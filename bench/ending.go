package main

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-run/berth/bench/side"
)

// ending is the graceful end of many pods at once.
type ending struct {
	Pods int `json:"pods"`
	// Signalled is the time until the last container has seen SIGTERM, Gone the time until nothing of the pods is left.
	Signalled summary `json:"signalled"`
	Gone      summary `json:"gone"`
}

// ending measures the end of pods that have time to end by themselves, and do so at once.
func (b *bench) ending(ctx context.Context) error {
	e := ending{Pods: b.burst}
	var signalled, gone []time.Duration
	for round := range b.rounds {
		prefix := fmt.Sprintf("ending-%d", round)
		if _, err := b.berth.Start(ctx, prefix, e.Pods, side.Marking(), 0); err != nil {
			return err
		}
		last, all, err := b.berth.End(ctx, prefix, e.Pods)
		if err != nil {
			return err
		}
		signalled, gone = append(signalled, last), append(gone, all)
	}
	e.Signalled, e.Gone = summarise(signalled), summarise(gone)
	b.results.Ending = e
	return nil
}

// text prints the part. The goal for the whole grows with the time of `runc create`. It is 1 s on a machine where that
// takes 28 ms.
func (e ending) text(p *page, create summary) {
	if e.Pods == 0 {
		return
	}
	p.line("\n## From the removal of the manifests of %d pods to their graceful end, in ms, n=%d\n", e.Pods, e.Gone.N)
	p.line("| what | min | p50 | max | goal |")
	p.line("|---|---|---|---|---|")
	p.line("| the last container has SIGTERM | %.0f | %.0f | %.0f | 200 |",
		e.Signalled.Min, e.Signalled.P50, e.Signalled.Max)
	p.line("| nothing is left | %.0f | %.0f | %.0f | %.0f |", e.Gone.Min, e.Gone.P50, e.Gone.Max, create.P50/28*1000)
	p.line("\nThe second goal is 1 s for each 28 ms that `runc create` takes. Here it takes %.1f ms (p50, n=%d).",
		create.P50, create.N)
}
