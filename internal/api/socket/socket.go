package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/base/unixsocket"
)

// ErrInUse means that another process accepts connections on the socket.
var ErrInUse = errors.New("another agent listens on it")

// Listen creates the socket at path with mode 0600 and returns its listener.
//
// Listen binds the socket in a private directory beside path, sets its mode and moves it to path. So another user can
// never connect to it. It replaces a socket that a dead process left behind. A socket that accepts connections gives
// ErrInUse, and a file that is no socket stays untouched.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fail(err)
	}
	unlock, err := lockFile(ctx, path)
	if err != nil {
		return fail(err)
	}
	defer unlock()
	if err := checkFree(ctx, path); err != nil {
		return fail(err)
	}
	private, err := os.MkdirTemp(dir, ".s")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(private) }() // at worst an empty directory stays
	tmp := filepath.Join(private, "s")
	at, err := unixsocket.At(tmp)
	if err != nil {
		return fail(err)
	}
	defer at.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at.Short, Net: "unix"})
	if err != nil {
		return fail(err)
	}
	l.SetUnlinkOnClose(false) // closing would remove tmp
	err = os.Chmod(tmp, 0o600)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = l.Close()
		return fail(err)
	}
	return newListener(l, path)
}

// patience is how long Listen waits for another agent that creates the same socket.
const patience = 10 * time.Second

// lockFile keeps two agents from creating the same socket at the same time. The file is beside the socket, and only its
// owner can open it: whoever could open it could hold the lock for ever.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock")
	f, err := lock.TryFor(ctx, name, patience)
	if err != nil {
		return nil, err
	}
	return func() {
		_ = os.Remove(name) // if this fails, the next agent uses the file again
		f.Close()
	}, nil
}

// checkFree returns an error if the socket cannot be created at path.
func checkFree(ctx context.Context, path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case st.Mode().Type() != os.ModeSocket:
		return errors.New("a file that is not a socket is in the way; remove it or choose another path with --socket")
	}
	c, err := unixsocket.Dial(ctx, path)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("%w; stop it first or give this one another --root-dir", ErrInUse)
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil // its process is dead
	}
	return err
}

// listener removes its socket when it closes, unless another process has replaced it.
type listener struct {
	*net.UnixListener
	path string
	made os.FileInfo
}

func newListener(l *net.UnixListener, path string) (net.Listener, error) {
	made, err := os.Lstat(path)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return &listener{UnixListener: l, path: path, made: made}, nil
}

func (l *listener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.made) {
		_ = os.Remove(l.path) // if this fails, the next agent replaces the socket
	}
	return l.UnixListener.Close()
}
