package lock

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/base/roottest"
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
	want := "lock " + root + "/lock: another agent or runtime works on this root directory (pid " +
		strconv.Itoa(os.Getppid()) + ")"
	if !errors.Is(err, ErrLocked) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The holder deletes the file with everything else, so a lock on the deleted file is worth nothing.
func TestNamesSeesThatAFileWasReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	check := func(when string, want bool) {
		t.Helper()
		if got, err := names(path, f); got != want || err != nil {
			t.Errorf("%s: %t, %v", when, got, err)
		}
	}
	check("unchanged", true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	check("deleted", false)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check("replaced", false)
}

// A user who can open the file could hold its lock for ever.
func TestTryRefusesTheFilesOfOthers(t *testing.T) {
	roottest.Need(t, "changing owners")
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 4242, 4242)); err != nil {
		t.Fatal(err)
	}
	if _, err := Try(path); err == nil || !strings.Contains(err.Error(), "belongs to user 4242") {
		t.Errorf("another user's file: %v", err)
	}
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.Chown(path, 0, 0), os.Chmod(path, 0o644), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	if _, err := Try(link); err == nil {
		t.Error("a link was locked")
	}
	f, err := Try(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// Commands end soon. An agent that is restarted at such a moment must not fail.
func TestRootWaitsForACommand(t *testing.T) {
	root := t.TempDir()
	unlock, err := Command(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan error, 1)
	go func() {
		free, err := Root(t.Context(), root)
		if err == nil {
			err = free()
		}
		taken <- err
	}()
	short, cancel := context.WithTimeout(t.Context(), 2*turn)
	defer cancel()
	if _, err := Command(short, root); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("two commands hold the lock, or one does not wait: %v", err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
	if err := <-taken; err != nil {
		t.Errorf("the command has ended: %v", err)
	}
}
