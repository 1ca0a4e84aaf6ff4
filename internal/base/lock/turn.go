package lock

import (
	"context"
	"errors"
	"log/slog"
)

// Turn waits until this agent holds the lock file, if file is not empty. It logs when it has to wait. If yields is set
// and another process wants the lock, Turn calls yield.
func Turn(ctx context.Context, file string, yields bool, log *slog.Logger, yield func()) (release func() error,
	err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	free, err := Try(file)
	held := &File{free}
	if errors.Is(err, ErrHeld) {
		log.Info("another process holds the lock file, waiting until it releases it", "file", file)
		held, err = Acquire(ctx, file)
	}
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
