package looptest

import (
	"context"
	"errors"
	"testing"
)

// Start runs a loop in the background. end ends the loop's context and waits for the loop. The test fails unless the
// loop's error is want, which is often context.Canceled. The caller must call end once.
func Start(t testing.TB, run func(context.Context) error, want error) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; !errors.Is(err, want) {
			t.Errorf("a loop has ended with %v, want %v", err, want)
		}
	}
}
