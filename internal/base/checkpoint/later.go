package checkpoint

import (
	"context"
	"time"
)

// Delay spaces saves, so that one save covers several changes.
type Delay struct {
	// Before is the time between a change and its save.
	Before time.Duration
	// After is the time after a save before the next one.
	After time.Duration
}

// SaveLater calls save after each change, with a delay, and once more when ctx ends. It returns ctx's error. Pace is
// for a caller that retries failed writes with growing delays.
func SaveLater(ctx context.Context, changed <-chan struct{}, d Delay, save func()) error {
	for {
		select {
		case <-ctx.Done():
			save()
			return ctx.Err()
		case <-changed:
		}
		sleep(ctx, d.Before)
		select {
		case <-changed: // during the delay: this save covers it
		default:
		}
		save()
		sleep(ctx, d.After)
	}
}

// sleep waits for a time, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
