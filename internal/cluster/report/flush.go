package report

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Flush has all that waits sent now, whatever it waits for, the most urgent first,
// and returns when the API server has taken what was there at the call. Run must be running. What fails
// is tried again until ctx ends; the error then says how many pods are left.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	w.outage = outage{}
	open := map[types.UID]uint64{}
	for uid, e := range w.dirty {
		e.due, e.fails = time.Time{}, 0
		open[uid] = e.version
	}
	w.awake()
	w.mu.Unlock()
	for {
		left, settled := w.left(open)
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("flush statuses of pods: %d of %d are left: %w", left, len(open), context.Cause(ctx))
		case <-settled:
		}
	}
}

// left counts the rows that have not been brought up to a version, and gives a channel
// that is closed when there may be fewer.
func (w *Writer) left(open map[types.UID]uint64) (int, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for uid, version := range open {
		if e := w.rows[uid]; e != nil && e.done < version {
			n++
		}
	}
	if w.settled == nil {
		w.settled = make(chan struct{})
	}
	return n, w.settled
}
