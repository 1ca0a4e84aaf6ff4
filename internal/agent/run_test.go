package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/agent/foundation"
	"github.com/berth-run/berth/internal/pod/steps/dra"
)

func TestALoopThatFailsSaysItsName(t *testing.T) {
	group, ctx := errgroup.WithContext(t.Context())
	start(ctx, group, []loop{
		{"quiet", func(context.Context) error { return nil }},
		{"patient", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		{"broken", func(context.Context) error { return errors.New("disk full") }},
	}, &running{}, slog.New(slog.DiscardHandler))
	if err := group.Wait(); err == nil || err.Error() != "broken: disk full" {
		t.Errorf("%v", err)
	}
}

func TestLoopsThatEndWithTheAgentAreNoFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	start(ctx, group, []loop{{"patient", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}},
		&running{}, slog.New(slog.DiscardHandler))
	cancel()
	if err := foundation.Ended(group.Wait()); err != nil {
		t.Errorf("%v", err)
	}
}

func TestBoundedLeavesBehindWhatDoesNotEnd(t *testing.T) {
	for _, failed := range []bool{false, true} { // a part has failed, or the context has ended
		synctest.Test(t, func(t *testing.T) {
			release, parts := make(chan struct{}), &running{}
			ctx, cancel := context.WithCancel(t.Context())
			began := time.Now()
			var left []string
			if !failed {
				cancel()
			}
			err := bounded(ctx, endPatience, func(_ context.Context, end context.CancelFunc) error {
				defer parts.begin("hangs")()
				parts.begin("ends")()
				end()
				<-release
				return nil
			}, func() { left = parts.names() })
			if took := time.Since(began); err != nil || took != endPatience || !slices.Equal(left, []string{"hangs"}) {
				t.Errorf("ended after %v with %v, without %v", took, err, left)
			}
			close(release)
			cancel()
		})
	}
}

func TestBoundedReturnsError(t *testing.T) {
	want := errors.New("disk full")
	err := bounded(t.Context(), endPatience, func(context.Context, context.CancelFunc) error { return want },
		func() { t.Error("left behind") })
	if !errors.Is(err, want) {
		t.Errorf("%v", err)
	}
}

// The table in ARCHITECTURE.md lists the steps in their order. It also has the step that a node of a cluster adds.
func TestArchitectureListsTheSteps(t *testing.T) {
	page, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| step | phase | after |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var got []string
	for row := range strings.Lines(table) {
		if !strings.HasPrefix(row, "| "+dra.StepName+" ") {
			got = append(got, strings.ReplaceAll(strings.TrimSpace(row), ", "+dra.StepName, ""))
		}
	}
	var want []string
	for _, s := range Steps() {
		want = append(want,
			fmt.Sprintf("| %s | %s | %s |", s.Name, s.Phase, cmp.Or(strings.Join(s.After, ", "), "-")))
	}
	if !slices.Equal(got, want) {
		t.Errorf("ARCHITECTURE.md lists\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
