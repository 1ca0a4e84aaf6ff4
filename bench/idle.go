package main

import (
	"context"

	"github.com/berth-run/berth/bench/idle"
)

// idlePods measures CPU and memory while pods run and nothing happens: with the agent that all parts before have used,
// and with fresh ones.
func (b *bench) idlePods(ctx context.Context) (err error) {
	if b.results.Idle.Used, err = idle.Used(ctx, b.berth, b.watch); err != nil {
		return err
	}
	b.results.Idle.Fresh, err = idle.Fresh(ctx, b.berth.Dirs, b.watch)
	return err
}
