package descriptors

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Release closes all files and sockets of this process but standard input, output and error, so that locks (flock(2))
// and listening addresses are free for the next process. The kernel does that when a process ends, but a thread that
// waits in the kernel for a file system that does not answer cannot end, not even by SIGKILL, and the kernel then keeps
// the files of all threads.
//
// The numbers stay taken: each descriptor becomes one that allows no reading and no writing (O_PATH, open(2)).
// Otherwise code that still runs would write into a file that gets the number next. Files without a path or socket,
// such as those of epoll(7), stay as they are: the Go runtime needs them.
//
// A close may wait too. Release returns after limit at the latest, and then with an error that names what is still
// open. Only a process that ends right afterwards may call it.
func Release(limit time.Duration) error {
	none, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("release open files: %w", err)
	}
	open, err := held(none)
	if err != nil {
		return fmt.Errorf("release open files: %w", err)
	}
	type result struct {
		fd  int
		err error
	}
	results := make(chan result, len(open))
	for fd := range open {
		go func() {
			// A file that is mapped into memory stays open with its lock. A socket has none.
			_ = unix.Flock(fd, unix.LOCK_UN)
			results <- result{fd, unix.Dup3(none, fd, unix.O_CLOEXEC)}
		}()
	}
	var failed []error
	for late := time.After(limit); len(open) > 0; {
		select {
		case r := <-results:
			if r.err != nil {
				failed = append(failed, fmt.Errorf("release %s: %w", open[r.fd], r.err))
			}
			delete(open, r.fd)
		case <-late:
			for _, name := range open {
				failed = append(failed, fmt.Errorf("release %s: no answer after %v", name, limit))
			}
			return errors.Join(failed...)
		}
	}
	return errors.Join(failed...)
}

// held returns the files and sockets that are open, by descriptor, without standard input, output and error, and
// without one.
func held(without int) (map[int]string, error) {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	open := map[int]string{}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			return nil, err
		}
		name, err := os.Readlink(filepath.Join(dir, entry.Name()))
		if err != nil {
			continue // the descriptor of the directory itself is closed by now
		}
		if fd > unix.Stderr && fd != without && (filepath.IsAbs(name) || strings.HasPrefix(name, "socket:")) {
			open[fd] = name
		}
	}
	return open, nil
}
