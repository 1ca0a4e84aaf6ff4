package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/bench/side"
)

// restarts is the time from the end of a container until it runs again. It contains no crash back-off, because the
// first restart has none.
type restarts struct {
	// Killed is for containers that SIGKILL ended, Exited for containers that exited after SIGTERM. Both end with the
	// first instruction of the next instance.
	Killed comparison `json:"killed"`
	Exited comparison `json:"exited"`
	// Begun is for both kinds. It ends when Berth reports the begin of the restart. For the floor it ends when the
	// runtime reports the end of the container.
	Begun comparison `json:"begun"`
}

func (b *bench) restart(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	floor, err := b.floor.RestartEnded(ctx)
	if err != nil {
		return err
	}
	ours := b.berth.RestartsBegun(ctx)
	r := &b.results.Restart
	for _, kind := range []struct {
		name   string
		signal unix.Signal
		*comparison
	}{{"killed", unix.SIGKILL, &r.Killed}, {"exited", unix.SIGTERM, &r.Exited}} {
		ends := side.Shape{Args: []string{"stopped", "then", "exit", "1"}}
		sides := []struct {
			side.Hosted
			begins      <-chan side.Begin
			took, begun *[]time.Duration
		}{{b.berth, ours, &kind.berth, &r.Begun.berth}, {b.floor, floor, &kind.floor, &r.Begun.floor}}
		for _, s := range sides {
			if _, err := s.Start(ctx, kind.name, b.restarts, ends, 8); err != nil {
				return err
			}
		}
		for i := range b.restarts {
			bare, err := way{b.bare, side.Shape{}, "bare-" + kind.name}.start(ctx, i)
			if err != nil {
				return err
			}
			kind.bare = append(kind.bare, bare)
			for _, s := range sides {
				took, begun, err := endOne(ctx, s.Host(), side.PodName(kind.name, i), kind.signal, s.begins)
				if err != nil {
					return err
				}
				*s.took, *s.begun = append(*s.took, took), append(*s.begun, begun)
			}
		}
		for _, s := range sides {
			if _, err := s.Remove(ctx, kind.name, b.restarts, 8); err != nil {
				return err
			}
		}
		kind.summarise()
	}
	r.Begun.summarise()
	return nil
}

// endOne ends the container of a pod with a signal, and waits until the next instance runs.
func endOne(ctx context.Context, p *side.Process, podName string, signal unix.Signal,
	begins <-chan side.Begin) (took, begun time.Duration, err error) {
	_, pid, err := p.Container(ctx, podName)
	if err != nil {
		return 0, 0, err
	}
	end, next, err := side.End(ctx, p.Stamps, podName, pid, signal)
	if err != nil {
		return 0, 0, err
	}
	for {
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case b := <-begins: // earlier ones are for other pods or for the first start
			if b.Pod == podName+p.Suffix && b.At.After(end) {
				return next.Sub(end), b.At.Sub(end), nil
			}
		}
	}
}

func (r restarts) text(p *page) {
	if r.Begun.Berth.N == 0 {
		return
	}
	p.line("\n## From a container's end to the next one, in ms\n")
	p.line("The last columns compare with the start of a container by runc alone: the ratios of p50 and of p99.\n")
	p.line("| what | Berth p50, p99 | CRI calls p50, p99 | ratio of p50 | runc alone p50, p99 | ratios | goal |")
	p.line("|---|---|---|---|---|---|---|")
	for _, row := range []struct {
		comparison
		what string
	}{
		{r.Killed, "killed from outside, to the next one's first instruction"},
		{r.Exited, "ended by itself, to the next one's first instruction"},
	} {
		alone := "- | -" // results of a run before runc alone was measured
		if row.Bare.N > 0 {
			alone = fmt.Sprintf("%.1f, %.1f | **%.2f, %.2f**", row.Bare.P50, row.Bare.P99, row.BareRatio,
				ratio(row.Berth.P99, row.Bare.P99))
		}
		p.line("| %s, n=%d | %.1f, %.1f | %.1f, %.1f | %.2f | %s | 1.60, 3.00 |", row.what, row.Berth.N,
			row.Berth.P50, row.Berth.P99, row.Floor.P50, row.Floor.P99, row.Ratio, alone)
	}
	p.line("")
	p.line("| what | Berth p50, p99 | CRI calls p50, p99 | ratio of p50 | goal |")
	p.line("|---|---|---|---|---|")
	r.Begun.tailRow(p, "seen and restart begun; the floor: the runtime reports the end", "under 100")
}

// tailRow prints a row with the 99th percentile, for times whose slow cases matter.
func (c comparison) tailRow(p *page, what, goal string) {
	p.line("| %s, n=%d | %.1f, %.1f | %.1f, %.1f | **%.2f** | %s |", what, c.Berth.N,
		c.Berth.P50, c.Berth.P99, c.Floor.P50, c.Floor.P99, c.Ratio, goal)
}
