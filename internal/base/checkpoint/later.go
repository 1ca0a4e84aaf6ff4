package checkpoint

import (
	"context"
	"time"
)

// SaveLater calls save some time after each change, so that one save covers several changes, and once more when ctx
// ends. It returns ctx's error. Pace is for a caller that retries failed writes with growing delays.
func SaveLater(ctx context.Context, changed <-chan struct{}, delay time.Duration, save func()) error {
	for {
		select {
		case <-ctx.Done():
			save()
			return ctx.Err()
		case <-changed:
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
		select {
		case <-changed: // during the delay: this save covers it
		default:
		}
		save()
	}
}

// SaveSpaced calls save at once after a change, and not again until pause has passed. It calls save once more when ctx
// ends. It returns ctx's error.
func SaveSpaced(ctx context.Context, changed <-chan struct{}, pause time.Duration, save func()) error {
	for {
		select {
		case <-ctx.Done():
			save()
			return ctx.Err()
		case <-changed:
			save()
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}
