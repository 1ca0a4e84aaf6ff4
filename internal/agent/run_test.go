package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"golang.org/x/sync/errgroup"
)

func TestALoopThatFailsSaysItsName(t *testing.T) {
	group, ctx := errgroup.WithContext(t.Context())
	start(ctx, group, []loop{
		{"quiet", func(context.Context) error { return nil }},
		{"patient", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		{"broken", func(context.Context) error { return errors.New("disk full") }},
	}, slog.New(slog.DiscardHandler))
	if err := group.Wait(); err == nil || err.Error() != "broken: disk full" {
		t.Errorf("%v", err)
	}
}

func TestLoopsThatEndWithTheAgentAreNoFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	start(ctx, group, []loop{{"patient", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}},
		slog.New(slog.DiscardHandler))
	cancel()
	if err := ended(group.Wait()); err != nil {
		t.Errorf("%v", err)
	}
}
