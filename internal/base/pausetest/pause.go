package pausetest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Pause stops a child of this process with SIGSTOP. Its threads run on for a moment after the signal, and may still
// answer a request, so Pause waits until the kernel reports that all have stopped (waitid(2)). An error of a process
// that has ended is os.ErrProcessDone.
func Pause(p *os.Process) error {
	if err := p.Signal(unix.SIGSTOP); err != nil {
		return fmt.Errorf("pause process %d: %w", p.Pid, err)
	}
	for {
		err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WSTOPPED, nil)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait until process %d has stopped: %w", p.Pid, err)
		}
	}
}

// Stopped reports whether all threads of a process have stopped, which need not be a child of this process
// (proc_pid_task(5)).
func Stopped(pid int) (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false, errors.Join(err, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone))
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			return false, err
		}
		_, rest, _ := bytes.Cut(stat, []byte(") ")) // the name of the program is in parentheses
		if !bytes.HasPrefix(rest, []byte("T")) {
			return false, nil
		}
	}
	return true, nil
}

// Resume lets a process run on that Pause has stopped.
func Resume(p *os.Process) error {
	if err := p.Signal(unix.SIGCONT); err != nil {
		return fmt.Errorf("resume process %d: %w", p.Pid, err)
	}
	return nil
}
