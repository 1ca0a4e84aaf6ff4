package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDoublingStaysAtItsLimit(t *testing.T) {
	b := Doubling(time.Second, 5*time.Second)
	var got []time.Duration
	for range 6 {
		got = append(got, b.Step())
	}
	want := []time.Duration{
		time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second, 5 * time.Second,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("steps (-want +got):\n%s", d)
	}
}

func TestDelayIsTheStepAfterFailures(t *testing.T) {
	for failures, want := range []time.Duration{0, 1, 2, 4, 5, 5} {
		if got := Delay(time.Second, 5*time.Second, failures); got != want*time.Second {
			t.Errorf("after %d failures: %s, want %s", failures, got, want*time.Second)
		}
	}
	if got := Delay(time.Second, time.Minute, 1<<40); got != time.Minute {
		t.Errorf("after very many failures: %s, want the limit", got)
	}
	if got := Delay(time.Minute, time.Second, 1); got != time.Second {
		t.Errorf("a first step above the limit: %s, want the limit", got)
	}
}

func TestUntilRepeatsUntilSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, calls, fault := time.Now(), 0, errors.New("fault")
		var nexts []time.Duration
		err := Until(t.Context(), Doubling(time.Second, 2*time.Second), func(context.Context) error {
			if calls++; calls < 4 {
				return fault
			}
			return nil
		}, func(err error, next time.Duration) {
			if !errors.Is(err, fault) {
				t.Errorf("failed was called with %v", err)
			}
			nexts = append(nexts, next)
		})
		if err != nil || calls != 4 || time.Since(began) != 5*time.Second {
			t.Errorf("%d calls in %s: %v", calls, time.Since(began), err)
		}
		if d := cmp.Diff([]time.Duration{time.Second, 2 * time.Second, 2 * time.Second}, nexts); d != "" {
			t.Errorf("delays (-want +got):\n%s", d)
		}
	})
}

func TestUntilEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		err := Until(ctx, Doubling(time.Minute, time.Hour), func(context.Context) error { return errors.New("fault") },
			func(error, time.Duration) {})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
