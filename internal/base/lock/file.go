package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/inotify"
)

// turn is how long Acquire waits between two tries.
const turn = 100 * time.Millisecond

// File is a lock that a kubelet takes too (flock(2) on --lock-file), so that of
// several that are given the same file one works.
type File struct {
	file *os.File
}

// Acquire waits until nobody else has the lock of a file, which is made if it is
// not there, and takes it. It goes with the process, however that ends.
func Acquire(ctx context.Context, path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return &File{f}, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-time.After(turn):
		}
	}
}

// Contended waits until another process opens the file, or removes it, which is
// how it says that it wants to work here. It returns nil then, and the error of ctx
// if that ends before.
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

// Release gives the lock away.
func (l *File) Release() error { return l.file.Close() }
