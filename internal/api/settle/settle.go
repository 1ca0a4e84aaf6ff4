package settle

import (
	"context"
	"time"
)

// Time is how long a request about pods waits at most. A runtime or a source that does not answer must not hide the
// pods that the agent has found already.
const Time = 10 * time.Second

// Wait returns when settled is closed or the time is over. A settled that is nil means that all pods are known. The
// error is ctx's. Without the wait, a client could take a missing pod for a deleted one.
func Wait(ctx context.Context, settled <-chan struct{}, atMost time.Duration) error {
	if settled == nil {
		return nil
	}
	select {
	case <-settled:
		return nil
	default:
	}
	late := time.NewTimer(atMost)
	defer late.Stop()
	select {
	case <-settled:
	case <-late.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
