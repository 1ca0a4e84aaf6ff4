package socket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/poll"
)

// Lock keeps other shims from the socket at a path. One that was killed may keep it for a moment, until all its threads
// have ended. Close the file to release the lock.
func Lock(path string) (*os.File, error) {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	held := poll.Pace{First: 2 * time.Millisecond, Limit: 5 * time.Second}.Until(func() bool {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		return err == nil
	})
	if !held {
		return nil, errors.Join(fmt.Errorf("lock %s: another shim serves there: %w", lock.Name(), err), lock.Close())
	}
	return lock, nil
}

// Scratch makes a directory beside the socket at a path for the temporary files of its shim. It removes those that a
// shim before has left: the caller has the lock. The directory's path leaves room for the name of a socket in it.
func Scratch(path string) (dir string, err error) {
	dir = filepath.Join(filepath.Dir(path), "tmp")
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return dir, os.Mkdir(dir, 0o700)
}

// Listener is a socket with its connections.
type Listener struct {
	*net.UnixListener
	mu   sync.Mutex
	open []net.Conn
}

// Listen makes a socket at a path, which only its owner can open. It replaces the socket of a shim before: the caller
// has the lock.
func Listen(path string) (*Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the path may be the next shim's by then
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Listener{UnixListener: l}, nil
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.UnixListener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	open := []net.Conn{conn}
	for _, earlier := range l.open {
		if !errors.Is(earlier.SetDeadline(time.Time{}), net.ErrClosed) {
			open = append(open, earlier)
		}
	}
	l.open = open
	return conn, nil
}

// CloseAll closes the socket and all its connections.
func (l *Listener) CloseAll() {
	_ = l.Close() // the process ends next
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.open {
		_ = conn.Close()
	}
}
