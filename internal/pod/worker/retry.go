package worker

import (
	"errors"
	"time"
)

// RetryError says when a failed step or task should be retried. A failure without one is retried after the worker's own
// growing delay.
type RetryError struct {
	At  time.Time
	Err error
}

func (e *RetryError) Error() string { return e.Err.Error() }

func (e *RetryError) Unwrap() error { return e.Err }

// RetryAt returns err with the earliest time of the next try.
func RetryAt(at time.Time, err error) error { return &RetryError{At: at, Err: err} }

func retryTime(err error) (time.Time, bool) {
	if e, ok := errors.AsType[*RetryError](err); ok {
		return e.At, true
	}
	return time.Time{}, false
}
