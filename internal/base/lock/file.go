package lock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/inotify"
	"github.com/berth-run/berth/internal/base/retry"
)

// The delay between two tries to take a lock begins with firstTurn and doubles up to turn.
const (
	firstTurn = 10 * time.Millisecond
	turn      = 100 * time.Millisecond
)

// TryFor takes the lock of a file as Try does. While another process holds the lock, TryFor tries again for the time
// patience, and then returns ErrHeld. It returns the context's error if ctx ends before.
func TryFor(ctx context.Context, path string, patience time.Duration) (*os.File, error) {
	end := time.Now().Add(patience)
	return tryWhile(ctx, path, func() bool { return time.Now().Before(end) })
}

// tryWhile takes the lock of a file as Try does. While another process holds the lock and worthwhile returns true, it
// tries again.
func tryWhile(ctx context.Context, path string, worthwhile func() bool) (*os.File, error) {
	delay := retry.Doubling(firstTurn, turn)
	for {
		f, err := Try(path)
		if !errors.Is(err, ErrHeld) || !worthwhile() {
			return f, err
		}
		if err := retry.Sleep(ctx, delay.Step()); err != nil {
			return nil, err
		}
	}
}

// File is a lock that a kubelet uses too (flock(2) on --lock-file). Only one of several agents with the same file works
// at a time.
type File struct {
	file *os.File
}

// Acquire waits until no other process holds the lock of a file and takes it. It creates the file if there is none. The
// kernel releases the lock when the process ends.
func Acquire(ctx context.Context, path string) (*File, error) {
	f, err := TryFor(ctx, path, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	return &File{f}, nil
}

// Contended waits until another process opens or removes the file. A process that waits for the lock does so. It
// returns nil then, or ctx's error.
func (l *File) Contended(ctx context.Context) error {
	kernel, err := inotify.Open()
	if err != nil {
		return fmt.Errorf("watch lock file: %w", err)
	}
	if _, err := kernel.Add(l.file.Name(), unix.IN_OPEN|unix.IN_DELETE_SELF); err != nil {
		return errors.Join(fmt.Errorf("watch lock file: %w", err), kernel.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = kernel.SetReadDeadline(time.Now()) })
	defer stop()
	_, err = kernel.Read(make([]byte, unix.SizeofInotifyEvent+unix.NAME_MAX+1))
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), kernel.Close())
	}
	if err != nil {
		err = fmt.Errorf("watch lock file %s: %w", l.file.Name(), err)
	}
	return errors.Join(err, kernel.Close())
}

// Release releases the lock.
func (l *File) Release() error { return l.file.Close() }
