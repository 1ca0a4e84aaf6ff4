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
		save()
	}
}
