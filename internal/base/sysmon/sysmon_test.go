package sysmon

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/process"
	"github.com/berth-run/berth/internal/base/roottest"
)

// slackOf reads the timer slack of a thread.
func slackOf(t *testing.T, thread int) time.Duration {
	t.Helper()
	content, err := os.ReadFile(process.Path(thread, "timerslack_ns"))
	if err != nil {
		t.Fatal(err)
	}
	slack, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(slack)
}

// sleeps returns how often a thread has slept.
func sleeps(t *testing.T, thread int) (count int) {
	t.Helper()
	status, err := os.ReadFile(process.Path(thread, "status"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
	if _, err := fmt.Sscan(text, &count); err != nil {
		t.Fatal(err)
	}
	return count
}

// The monitor is the second thread of the process: it alone sleeps again and again while a goroutine computes. Relax
// changes its timer slack, and not that of the first thread.
func TestRelax(t *testing.T) {
	if !roottest.OwnProcess(t) { // the monitor of the test is relaxed for ever
		return
	}
	thread, err := monitor()
	if err != nil {
		t.Fatal(err)
	}
	const often, limit = 20, time.Minute
	before := sleeps(t, thread)
	for start := time.Now(); sleeps(t, thread) < before+often; {
		if time.Since(start) > limit {
			t.Fatalf("the second thread has slept %d times meanwhile", sleeps(t, thread)-before)
		}
	}
	if err := Relax(); err != nil {
		t.Fatal(err)
	}
	if got := slackOf(t, thread); got != relaxed {
		t.Errorf("timer slack of the monitor: %s", got)
	}
	if got := slackOf(t, os.Getpid()); got != usual {
		t.Errorf("timer slack of the first thread: %s", got)
	}
}

// A program has the timer slack that it is started with, whichever the thread has that starts it.
func TestStart(t *testing.T) {
	runtime.LockOSThread() // it is not unlocked: the thread ends with the test
	for name, test := range map[string]struct {
		start func(*exec.Cmd) error
		want  time.Duration
	}{
		"usual":   {Start, usual},
		"relaxed": {StartRelaxed, relaxed},
	} {
		if err := setOwn(relaxed); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cat := exec.CommandContext(t.Context(), "cat", "/proc/self/timerslack_ns")
		cat.Stdout = &out
		if err := test.start(cat); err != nil {
			t.Fatal(err)
		}
		if err := cat.Wait(); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(out.String()); got != strconv.FormatInt(test.want.Nanoseconds(), 10) {
			t.Errorf("%s: a program has the timer slack %s, want %d", name, got, test.want)
		}
		if own, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil ||
			time.Duration(own) != usual {
			t.Errorf("%s: the thread has the timer slack %d afterwards, %v", name, own, err)
		}
	}
}

// A thread that has inherited another timer slack gets the usual one.
func TestRestoreThread(t *testing.T) {
	runtime.LockOSThread() // it is not unlocked: the thread ends with the test
	if err := setOwn(relaxed); err != nil {
		t.Fatal(err)
	}
	if err := RestoreThread(); err != nil {
		t.Fatal(err)
	}
	if own, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err != nil || time.Duration(own) != usual {
		t.Errorf("the thread has the timer slack %d, %v", own, err)
	}
}

// A process that was started with another timer slack gets the usual one. One that has ended is an error.
func TestRestore(t *testing.T) {
	roottest.Need(t, "setting the timer slack of another process")
	sleep := exec.CommandContext(t.Context(), "sleep", "60")
	if err := StartRelaxed(sleep); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
		if err := Restore(sleep.Process.Pid); !os.IsNotExist(err) {
			t.Errorf("a process that has ended: %v", err)
		}
	}()
	if got := slackOf(t, sleep.Process.Pid); got != relaxed {
		t.Errorf("timer slack after the start: %s", got)
	}
	if err := Restore(sleep.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if got := slackOf(t, sleep.Process.Pid); got != usual {
		t.Errorf("timer slack after Restore: %s", got)
	}
}
