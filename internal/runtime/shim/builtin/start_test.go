package builtin

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// waiting makes a state directory with a FIFO, and starts a process that behaves as the script says. The process has
// the name of one that waits for its start.
func waiting(t *testing.T, script string) (dir string, pid, pidfd int) {
	t.Helper()
	dir = t.TempDir()
	for _, fifo := range []string{FIFO(dir), filepath.Join(dir, "more")} { // the second has no writer
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "runc:[2:INIT]")
	if err := os.WriteFile(name, shell, 0o700); err != nil { //nolint:gosec // it is executed
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), name, "-c", script)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, err = unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = unix.Close(pidfd)
	})
	return dir, cmd.Process.Pid, pidfd
}

func TestStartLetsAWaitingProcessGoOn(t *testing.T) {
	dir, pid, pidfd := waiting(t, "printf 0 >exec.fifo; exec sleep 60")
	if err := Start(t.Context(), dir, pid, pidfd); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(FIFO(dir)); !os.IsNotExist(err) {
		t.Errorf("the FIFO is still there: %v", err)
	}
	if err := Start(t.Context(), dir, pid, pidfd); err == nil {
		t.Error("a container that runs was started again")
	}
}

func TestStartSeesAProcessThatEndsAtOnce(t *testing.T) {
	dir, pid, pidfd := waiting(t, "printf 0 >exec.fifo")
	if err := Start(t.Context(), dir, pid, pidfd); err != nil {
		t.Error(err)
	}
}

func TestStartOfADeadProcessFails(t *testing.T) {
	dir, pid, pidfd := waiting(t, "exit 1")
	if err := Start(t.Context(), dir, pid, pidfd); err == nil || !strings.Contains(err.Error(), "already dead") {
		t.Errorf("error %v, want that the process is dead", err)
	}
}

// The process no longer has runc's name, so an earlier shim has started it.
func TestStartOfAStartedProcessRemovesTheFIFO(t *testing.T) {
	dir, pid, pidfd := waiting(t, "exec sleep 60")
	if err := Start(t.Context(), dir, pid, pidfd); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(FIFO(dir)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	dir, pid, pidfd := waiting(t, "read line <more")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Start(ctx, dir, pid, pidfd); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the error of the context", err)
	}
	if _, err := os.Stat(FIFO(dir)); err != nil {
		t.Errorf("the FIFO of a container that waits: %v", err)
	}
}
