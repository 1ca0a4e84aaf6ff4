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
	// Sent is the time until the last SIGTERM is sent, by the kernel's account. Handled is the time until the last
	// container has handled it, Gone the time until nothing of the pods is left.
	Sent    summary `json:"sent"`
	Handled summary `json:"handled"`
	Gone    summary `json:"gone"`
}

// ending measures the end of pods that have time to end by themselves, and do so at once.
func (b *bench) ending(ctx context.Context) error {
	e := ending{Pods: b.burst}
	var sent, handled, gone []time.Duration
	for round := range b.rounds {
		prefix := fmt.Sprintf("ending-%d", round)
		if _, err := b.berth.Start(ctx, prefix, e.Pods, side.Marking(), 0); err != nil {
			return err
		}
		ended, err := b.berth.End(ctx, prefix, e.Pods)
		if err != nil {
			return err
		}
		sent, handled, gone = append(sent, ended.Sent), append(handled, ended.Handled), append(gone, ended.Gone)
	}
	e.Sent, e.Handled, e.Gone = summarise(sent), summarise(handled), summarise(gone)
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
	p.line("| the last SIGTERM is sent | %.0f | %.0f | %.0f | 200 |", e.Sent.Min, e.Sent.P50, e.Sent.Max)
	p.line("| the last container handles it | %.0f | %.0f | %.0f | - |", e.Handled.Min, e.Handled.P50, e.Handled.Max)
	p.line("| nothing is left | %.0f | %.0f | %.0f | %.0f |", e.Gone.Min, e.Gone.P50, e.Gone.Max, create.P50/28*1000)
	p.line("\nThe second goal is 1 s for each 28 ms that `runc create` takes. Here it takes %.1f ms (p50, n=%d).",
		create.P50, create.N)
}
