package pausetest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/poll"
)

// Pause stops a process with SIGSTOP. Its threads run on for a moment after the signal, and may still answer a request,
// so Pause waits until all have stopped. An error of a process that has ended is os.ErrProcessDone, also before its
// parent has read the exit code.
func Pause(p *os.Process) error {
	if err := p.Signal(unix.SIGSTOP); err != nil {
		return fmt.Errorf("pause process %d: %w", p.Pid, err)
	}
	var running, stopped int
	var err error
	poll.Pace{First: time.Millisecond}.Until(func() bool {
		running, stopped, err = threads(p.Pid)
		return err != nil || running == 0
	})
	switch {
	case err != nil:
		return fmt.Errorf("wait until process %d has stopped: %w", p.Pid, err)
	case stopped == 0:
		return fmt.Errorf("process %d has ended instead of stopping: %w", p.Pid, os.ErrProcessDone)
	}
	return nil
}

// threads counts the threads of a process that run and that have stopped (proc_pid_task(5)). Both are 0 if it has
// ended.
func threads(pid int) (running, stopped int, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	for _, file := range files {
		stat, err := os.ReadFile(file)
		_, rest, _ := bytes.Cut(stat, []byte(") ")) // the name of the program is in parentheses
		switch {
		case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ESRCH), bytes.HasPrefix(rest, []byte("Z")):
			// The thread has ended.
		case err != nil:
			return 0, 0, err
		case bytes.HasPrefix(rest, []byte("T")):
			stopped++
		default:
			running++
		}
	}
	return running, stopped, nil
}

// Resume lets a process run on that Pause has stopped.
func Resume(p *os.Process) error {
	if err := p.Signal(unix.SIGCONT); err != nil {
		return fmt.Errorf("resume process %d: %w", p.Pid, err)
	}
	return nil
}
