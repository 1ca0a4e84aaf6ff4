package lock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrLocked is the error if another agent works on the root directory.
var ErrLocked = errors.New("another agent works on this root directory")

// ErrHeld is the error of Try if another process holds the lock.
var ErrHeld = errors.New("another process holds the lock")

// Try takes the lock of a file (flock(2)) without waiting. It creates the file if there is none. The kernel releases the
// lock when the process ends, and the caller by closing the file.
func Try(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrHeld
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// Root takes the lock of a root directory, so that only one agent at a time works on it. The kernel releases the lock
// when the process ends.
func Root(root string) (unlock func() error, err error) {
	path := filepath.Join(root, "lock")
	f, err := Try(path)
	if errors.Is(err, ErrHeld) {
		text, readErr := os.ReadFile(path)
		pid := strings.TrimSpace(string(text))
		if readErr != nil || pid == "" {
			pid = "unknown"
		}
		return nil, fmt.Errorf("lock %s: %w (pid %s); stop it, or choose another --root-dir", path, ErrLocked, pid)
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), f.Close())
	}
	return f.Close, nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}
