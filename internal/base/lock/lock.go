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

// Root takes the lock of a root directory, so that only one agent at a time works on it. The kernel releases the lock
// when the process ends.
func Root(root string) (unlock func() error, err error) {
	path := filepath.Join(root, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock root directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		text, readErr := os.ReadFile(path)
		pid := strings.TrimSpace(string(text))
		if readErr != nil || pid == "" {
			pid = "unknown"
		}
		return nil, fmt.Errorf("lock %s: %w (pid %s); stop it, or choose another --root-dir", path, ErrLocked, pid)
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
