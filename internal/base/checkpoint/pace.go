package checkpoint

import (
	"context"
	"time"
)

// Limits of the delay between attempts while writes fail.
const (
	retryMin = 5 * time.Second
	retryMax = time.Minute
)

// Pace decides when to write state that changes often. It waits some time after a change, so that one write saves
// several changes. While writes fail, it retries with growing delays. The zero value has seen no failure. It is for one
// goroutine.
type Pace struct {
	retry time.Duration // until the next attempt; 0 unless the last write failed
}

// Wait waits until it is time to write: delay after dirty receives, or when a failed write must be retried. It returns
// false if ctx ends.
func (p *Pace) Wait(ctx context.Context, dirty <-chan struct{}, delay time.Duration) bool {
	if p.retry > 0 {
		delay = p.retry
	} else {
		select {
		case <-ctx.Done():
			return false
		case <-dirty:
		}
	}
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Record records the result of a write. fails is true for the first of several failures, and recovered for the first
// success after failures. The caller logs these two and nothing in between.
func (p *Pace) Record(err error) (fails, recovered bool) {
	switch {
	case err == nil:
		recovered = p.retry > 0
		p.retry = 0
	case p.retry == 0:
		fails = true
		p.retry = retryMin
	default:
		p.retry = min(2*p.retry, retryMax)
	}
	return fails, recovered
}
