package socket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/base/unixsocket"
)

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "berth")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestListen(t *testing.T) {
	t.Run("short", func(t *testing.T) { testListen(t, "run") })
	t.Run("long", func(t *testing.T) { testListen(t, strings.Repeat("long", 50)) })
}

func testListen(t *testing.T, dir string) {
	path := filepath.Join(shortDir(t), dir, "berth.sock")
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Lstat(path)
	if err != nil || st.Mode() != os.ModeSocket|0o600 {
		t.Fatalf("socket has mode %v (%v), want 0600", st.Mode(), err)
	}
	if _, err := Listen(t.Context(), path); !errors.Is(err, ErrInUse) {
		t.Errorf("a second agent: %v, want %v", err, ErrInUse)
	}
	if c, err := unixsocket.Dial(t.Context(), path); err != nil {
		t.Errorf("connect: %v", err)
	} else {
		_ = c.Close()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestListenReplacesStaleSocket(t *testing.T) {
	path := filepath.Join(shortDir(t), "berth.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if c, err := unixsocket.Dial(t.Context(), path); err != nil {
		t.Errorf("connect: %v", err)
	} else {
		_ = c.Close()
	}
}

func TestCloseKeepsSocketOfNextAgent(t *testing.T) {
	path := filepath.Join(shortDir(t), "berth.sock")
	first, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	_ = first.Close()
	if c, err := unixsocket.Dial(t.Context(), path); err != nil {
		t.Errorf("connect to the second: %v", err)
	} else {
		_ = c.Close()
	}
}

// Another user may open the directory, and hold a lock on it.
func TestListenIgnoresALockOnTheDirectory(t *testing.T) {
	dir := shortDir(t)
	held, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	listening := make(chan error, 1)
	go func() {
		l, err := Listen(t.Context(), filepath.Join(dir, "berth.sock"))
		if err == nil {
			err = l.Close()
		}
		listening <- err
	}()
	select {
	case err := <-listening:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("Listen waits for the holder of the lock")
	}
}

func TestListenRefusesTheLockFileOfAnotherUser(t *testing.T) {
	roottest.Need(t, "changing owners")
	path := filepath.Join(shortDir(t), "berth.sock")
	file := filepath.Join(filepath.Dir(path), ".berth.sock.lock")
	if err := errors.Join(os.WriteFile(file, nil, 0o666), os.Chown(file, 4242, 4242)); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), path); err == nil || !strings.Contains(err.Error(), "belongs to user 4242") {
		t.Errorf("got %v", err)
	}
}

func TestListenRefuses(t *testing.T) {
	dir := shortDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		file:                              "not a socket is in the way",
		filepath.Join(file, "berth.sock"): "not a directory",
	} {
		if _, err := Listen(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if data, err := os.ReadFile(file); string(data) != "kept" {
		t.Errorf("the file is now %q (%v)", data, err)
	}
}
