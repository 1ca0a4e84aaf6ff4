package pausetest_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/pausetest"
)

// All threads of a process have stopped when Pause returns.
func TestPause(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range 20 {
		if err := pausetest.Pause(cmd.Process); err != nil {
			t.Fatal(err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if err != nil || !strings.Contains(string(status), "\nState:\tT (stopped)\n") {
			t.Fatalf("%v, status of the process:\n%s", err, status)
		}
		if err := pausetest.Resume(cmd.Process); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintln(in, "go on"); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() || lines.Text() != "go on" {
			t.Fatalf("after the pause: %q, %v", lines.Text(), lines.Err())
		}
	}
	ended := func() error { return unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) }
	if err := errors.Join(in.Close(), ended()); err != nil {
		t.Fatal(err)
	}
	if err := pausetest.Pause(cmd.Process); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("before the exit code is read: %v, want %v", err, os.ErrProcessDone)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []func(*os.Process) error{pausetest.Pause, pausetest.Resume} {
		if err := f(cmd.Process); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("after the end: %v, want %v", err, os.ErrProcessDone)
		}
	}
}
