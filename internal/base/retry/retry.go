package retry

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Doubling returns a Backoff whose Step is first, then twice the step before, and never more than limit. It has no
// jitter: the loops of one node do not meet at a server that many nodes share. To start over after a success, the
// caller makes a new one.
func Doubling(first, limit time.Duration) wait.Backoff {
	return wait.Backoff{Duration: min(first, limit), Factor: 2, Steps: math.MaxInt32, Cap: limit}
}

// Delay returns the step that Doubling gives after a number of failures in a row. It is 0 for no failure.
func Delay(first, limit time.Duration, failures int) time.Duration {
	if failures <= 0 {
		return 0
	}
	b := Doubling(first, limit)
	delay := b.Step()
	for i := 1; i < failures && delay < limit; i++ {
		delay = b.Step()
	}
	return delay
}

// Sleep waits for d. It returns the context's error if the context ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Until calls try until it succeeds or the context ends, with the steps of b between the calls. After each failure it
// calls failed with the error and the time until the next call. It returns nil, or the context's error.
func Until(
	ctx context.Context, b wait.Backoff, try func(context.Context) error, failed func(err error, next time.Duration),
) error {
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		next := b.Step()
		failed(err, next)
		if err := Sleep(ctx, next); err != nil {
			return err
		}
	}
}
