package checkpoint

import (
	"context"
	"time"
)

// The time between attempts to write while the disk refuses.
const (
	retryMin = 5 * time.Second
	retryMax = time.Minute
)

// Pace says when to write what changes often: some time after a change, so that
// several are written at once, and again with growing delays while the disk
// refuses. The zero value has seen no failure. It is for one goroutine.
type Pace struct {
	retry time.Duration // after the last write failed: until the next; else 0
}

// Wait returns true when it is time to write: delay after something is dirty,
// or when a failed write is to be tried again. It returns false when ctx ends.
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

// Wrote takes the outcome of a write. It says whether the first of several has
// failed, and whether one went well again: each is worth a word, what is between
// them is not.
func (p *Pace) Wrote(err error) (fails, recovered bool) {
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
