package lock

import (
	"context"
	"errors"
)

// Turn waits until this agent holds the lock file, if file is not empty. If yields is set and another process wants the
// lock, Turn calls yield.
func Turn(ctx context.Context, file string, yields bool, yield func()) (release func() error, err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	held, err := Acquire(ctx, file)
	if err != nil {
		return nil, err
	}
	if !yields {
		return held.Release, nil
	}
	watching, stop := context.WithCancel(ctx)
	var watched error
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := held.Contended(watching); watching.Err() == nil {
			watched = err
			yield()
		}
	}()
	return func() error {
		stop()
		<-done
		return errors.Join(watched, held.Release())
	}, nil
}
