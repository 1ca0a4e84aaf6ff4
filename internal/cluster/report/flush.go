package report

import (
	"context"
	"errors"
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
	began := time.Now()
	for {
		left, settled := w.left(open)
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return &unsentError{left, len(open), time.Since(began).Round(time.Millisecond), context.Cause(ctx)}
		case <-settled:
		}
	}
}

// unsentError is the error of a Flush that ended before the API server had accepted all statuses.
type unsentError struct {
	left, all int
	waited    time.Duration
	cause     error // why the context ended
}

func (e *unsentError) Error() string {
	cause := e.cause.Error()
	if errors.Is(e.cause, context.DeadlineExceeded) {
		cause = fmt.Sprintf("the API server has not accepted them within %s", e.waited)
	}
	return fmt.Sprintf("flush statuses of pods: %d of %d are left: %s", e.left, e.all, cause)
}

func (e *unsentError) Unwrap() error { return e.cause }

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
