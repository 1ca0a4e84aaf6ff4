package lock

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// hold starts a process that holds the lock of a root directory for some time, as a copy of this process's lock. The
// lock file names the process pid.
func hold(t *testing.T, root string, seconds string, pid int) {
	t.Helper()
	path := filepath.Join(root, "lock")
	f, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", seconds)
	cmd.ExtraFiles = []*os.File{f}
	if err := errors.Join(cmd.Start(), f.Close(), os.WriteFile(path, []byte(strconv.Itoa(pid)), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// An agent was killed while it started a process. The process holds the lock until it runs its program.
func TestRootWaitsForTheLockOfADeadAgent(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	hold(t, root, "0.3", gone.ProcessState.Pid())
	unlock, err := Root(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

func TestRootNamesTheAgentThatHoldsTheLock(t *testing.T) {
	root := t.TempDir()
	hold(t, root, "60", os.Getppid())
	_, err := Root(t.Context(), root)
	want := "lock " + root + "/lock: another agent works on this root directory (pid " + strconv.Itoa(os.Getppid()) +
		"); stop it, or choose another --root-dir"
	if !errors.Is(err, ErrLocked) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
