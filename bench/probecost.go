package main

import (
	"context"

	"github.com/berth-run/berth/bench/idle"
	"github.com/berth-run/berth/bench/side"
	"github.com/berth-run/berth/internal/base/retry"
)

// probeCost compares the CPU time of exec probes with the CPU time of the same commands when a bare client runs them
// with ExecSync.
type probeCost struct {
	Pods    int       `json:"pods"`
	Seconds float64   `json:"seconds"`
	Berth   execUsage `json:"berth"`
	Floor   execUsage `json:"floor"`
	Ratio   float64   `json:"ratio"` // ratio of the CPU times of one command
}

// execUsage is the number of commands and their CPU time.
type execUsage struct {
	Commands int     `json:"commands"`
	Process  float64 `json:"processSeconds"`  // agent and runtime, or runtime and the bare client
	Shims    float64 `json:"shimSeconds"`     // one shim for each pod
	Children float64 `json:"childrenSeconds"` // runc and the commands
	Each     float64 `json:"milliseconds"`    // all three, for one command
}

// probeCost measures both sides, one after the other.
func (b *bench) probeCost(ctx context.Context) error {
	const prefix = "probed"
	command := []string{"/workload", "true"}
	c := probeCost{Pods: b.probes, Seconds: b.watch.Seconds()}
	for _, part := range []struct {
		side.Hosted
		usage  *execUsage
		client func(ctx context.Context, run func() error) error
		count  func(context.Context) (int, error)
	}{
		{b.berth, &c.Berth, func(_ context.Context, run func() error) error { return run() }, b.berth.Commands},
		{b.floor, &c.Floor, func(ctx context.Context, run func() error) error {
			return b.floor.ExecEachSecond(ctx, prefix, command, run)
		},
			b.floor.Commands},
	} {
		if _, err := part.Start(ctx, prefix, c.Pods, side.Probed(command), 8); err != nil {
			return err
		}
		err := part.client(ctx, func() (err error) {
			if err := retry.Sleep(ctx, idle.Settle); err != nil {
				return err
			}
			*part.usage, err = b.usage(ctx, part.Host(), part.count)
			return err
		})
		if err != nil {
			return err
		}
		if _, err := part.Remove(ctx, prefix, c.Pods, 8); err != nil {
			return err
		}
	}
	c.Ratio = ratio(c.Berth.Each, c.Floor.Each)
	b.results.Probes = c
	return nil
}

// usage measures a side for the time of -watch while commands run.
func (b *bench) usage(ctx context.Context, p *side.Process, count func(context.Context) (int, error)) (execUsage,
	error) {
	take := func() (u execUsage, err error) {
		used, err := p.Usage()
		if err != nil {
			return u, err
		}
		u.Process, u.Shims, u.Children = used.Process, used.Shims, used.Children
		u.Commands, err = count(ctx)
		return u, err
	}
	before, err := take()
	if err != nil {
		return before, err
	}
	if err := retry.Sleep(ctx, b.watch); err != nil {
		return before, err
	}
	u, err := take()
	u.Commands -= before.Commands
	u.Process -= before.Process
	u.Shims -= before.Shims
	u.Children -= before.Children
	u.Each = (u.Process + u.Shims + u.Children) * 1000 / float64(max(1, u.Commands))
	return u, err
}

func (c probeCost) text(p *page) {
	if c.Pods == 0 {
		return
	}
	p.line("\n## CPU time of %d pods with an exec probe each second, over %.0f s\n", c.Pods, c.Seconds)
	p.line("| what | Berth | ExecSync by a bare client | ratio |")
	p.line("|---|---|---|---|")
	p.line("| commands run | %d | %d | |", c.Berth.Commands, c.Floor.Commands)
	p.line("| for a command, ms | %.2f | %.2f | **%.2f** |", c.Berth.Each, c.Floor.Each, c.Ratio)
	for _, row := range []struct {
		what         string
		berth, floor float64
	}{
		{"of that agent and runtime, or runtime and client", c.Berth.Process, c.Floor.Process},
		{"of that the shims", c.Berth.Shims, c.Floor.Shims},
		{"of that runc and the command", c.Berth.Children, c.Floor.Children},
	} {
		each := func(seconds float64, u execUsage) float64 { return seconds * 1000 / float64(max(1, u.Commands)) }
		p.line("| %s, ms | %.2f | %.2f | |", row.what, each(row.berth, c.Berth), each(row.floor, c.Floor))
	}
}
