package descriptors

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/lock"
)

// In a child of the test Release takes a lock and a listening socket away, and standard output works on.
func TestRelease(t *testing.T) {
	const role = "BERTH_TEST_RELEASE"
	if dir := os.Getenv(role); dir != "" {
		release(t, dir)
		return
	}
	dir := t.TempDir()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRelease$")
	child.Env = append(os.Environ(), role+"="+dir)
	out, err := child.Output()
	if err != nil || !bytes.Contains(out, []byte("released\n")) {
		t.Errorf("output %q, %v", out, err)
	}
}

func release(t *testing.T, dir string) {
	path, address := filepath.Join(dir, "lock"), filepath.Join(dir, "socket")
	locked, err := lock.Try(path)
	if err != nil {
		t.Fatal(err)
	}
	// As a database does. The mapping stays.
	if _, err := unix.Mmap(int(locked.Fd()), 0, 1, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "unix", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := Release(time.Minute); err != nil {
		t.Error(err)
	}
	if _, err := locked.WriteString("x"); !errors.Is(err, unix.EBADF) {
		t.Errorf("write to a released file: %v, want %v", err, unix.EBADF)
	}
	if again, err := lock.Try(path); err != nil || again.Fd() == locked.Fd() {
		t.Errorf("lock a released file: %v", err)
	}
	var dialer net.Dialer
	if _, err := dialer.DialContext(t.Context(), "unix", address); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("connect to a released socket of %v: %v, want %v", listener.Addr(), err, unix.ECONNREFUSED)
	}
	if _, err := strings.NewReader("released\n").WriteTo(os.Stdout); err != nil {
		t.Error(err)
	}
}
