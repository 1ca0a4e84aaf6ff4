package main

import (
	"context"
	"os"

	"github.com/berth-run/berth/bench/idle"
	"github.com/berth-run/berth/bench/scale"
	"github.com/berth-run/berth/bench/side"
)

// idlePods measures CPU and memory while pods run and nothing happens: with the agent that all parts before have used,
// and with fresh ones.
func (b *bench) idlePods(ctx context.Context) (err error) {
	if b.results.Idle, err = idle.Used(ctx, b.berth, b.watch); err != nil {
		return err
	}
	b.results.IdleFresh, err = idle.Fresh(ctx, b.berth.Dirs, b.watch)
	return err
}

// scale measures an agent with many pods on the fake runtime.
func (b *bench) scale(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "bs") // short: unix sockets lie below it
	if err != nil {
		return err
	}
	b.results.Scale, err = scale.Measure(ctx, scale.Options{
		Dir: dir, Binary: side.Binary, Sizes: []int{50, 250, 500}, Changes: b.pods, Idle: b.watch,
	})
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
