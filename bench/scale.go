package main

import (
	"context"
	"os"

	"github.com/berth-run/berth/bench/scale"
	"github.com/berth-run/berth/bench/side"
)

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
