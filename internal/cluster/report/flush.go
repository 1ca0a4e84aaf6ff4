package report

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Flush sends all waiting rows now, the most urgent first. It returns when the API server has accepted the statuses
// of the time of the call. Run must be running. Failures are retried until ctx ends. The error then says how many
// pods are left.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	w.outage = outage{}
	open := map[types.UID]uint64{}
	for uid, e := range w.dirty {
		e.due, e.fails = time.Time{}, 0
		open[uid] = e.version
	}
	w.wake.Wake()
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

// left counts the rows that are not yet sent up to a version. It returns a channel that is closed when there may be
// fewer.
func (w *Writer) left(open map[types.UID]uint64) (int, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for uid, version := range open {
		if e := w.rows[uid]; e != nil && e.done < version {
			n++
		}
	}
	return n, w.settled.C()
}
