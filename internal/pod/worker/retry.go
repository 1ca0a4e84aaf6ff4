package worker

import (
	"errors"
	"time"
)

// RetryError tells the worker when a failed step or task is worth another try.
// Without one it is tried again after the worker's own growing delay.
type RetryError struct {
	At  time.Time
	Err error
}

func (e *RetryError) Error() string { return e.Err.Error() }

func (e *RetryError) Unwrap() error { return e.Err }

// RetryAt says that err is worth another try at that time and not before.
func RetryAt(at time.Time, err error) error { return &RetryError{At: at, Err: err} }

func retryTime(err error) (time.Time, bool) {
	if e, ok := errors.AsType[*RetryError](err); ok {
		return e.At, true
	}
	return time.Time{}, false
}
