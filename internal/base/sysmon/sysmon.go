package sysmon

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/process"
)

const (
	// usual is the timer slack of a thread that nobody has changed.
	usual = 50 * time.Microsecond
	// relaxed is the timer slack of a monitor that sleeps longer: a tick of most kernels (CONFIG_HZ=250). A goroutine
	// whose thread blocks in the kernel hands its processor to others so much later.
	relaxed = 4 * time.Millisecond
)

// Relax lets the monitor of this process sleep for up to 4 ms longer each time. It needs CAP_SYS_NICE, and
// Linux 4.6. An error leaves the monitor as it is, which costs only CPU time.
func Relax() error {
	thread, err := monitor()
	if err != nil {
		return err
	}
	return set(thread, relaxed)
}

// monitor returns the ID of the monitor's thread. The kernel lists threads in the order of their creation, and Go's
// runtime makes the monitor before all other threads but the first.
func monitor() (thread int, err error) {
	threads, err := os.Open("/proc/self/task")
	if err != nil {
		return 0, err
	}
	defer func() { _ = threads.Close() }() // it is only read
	first, err := threads.Readdirnames(2)
	if err != nil {
		return 0, err
	}
	if len(first) < 2 {
		return 0, errors.New("find the monitor of Go's runtime: this process has one thread")
	}
	return strconv.Atoi(first[1])
}

// Restore gives the first thread of a process the usual timer slack. It returns an error that is os.ErrNotExist or
// unix.ESRCH if the process has ended.
func Restore(pid int) error { return set(pid, usual) }

// RestoreThread gives the usual timer slack to the thread of the calling goroutine, and locks the goroutine to it.
func RestoreThread() error {
	runtime.LockOSThread()
	return setOwn(usual)
}

// set sets the timer slack of a thread. /proc has a directory of each thread, and lists only those of processes.
func set(thread int, slack time.Duration) error {
	return os.WriteFile(process.Path(thread, "timerslack_ns"), strconv.AppendInt(nil, slack.Nanoseconds(), 10), 0)
}

// Start starts a program that has the usual timer slack, from whichever thread.
func Start(command *exec.Cmd) error { return Usual(command.Start) }

// StartRelaxed starts a Go program whose monitor sleeps longer from the beginning. All its other threads, and what it
// starts, have the same timer slack.
func StartRelaxed(command *exec.Cmd) error { return Relaxed(command.Start) }

// Run is Start, and waits for the end of the program.
func Run(command *exec.Cmd) error {
	if err := Start(command); err != nil {
		return err
	}
	return command.Wait()
}

// Usual calls a function that starts programs, without a change of the thread. They have the usual timer slack.
func Usual(call func() error) error { return with(usual, call) }

// Relaxed calls a function that starts Go programs, without a change of the thread. Their monitors sleep longer, as
// those of StartRelaxed.
func Relaxed(call func() error) error { return with(relaxed, call) }

// with calls a function on a thread that has a timer slack meanwhile, and the usual one afterwards. A new process
// inherits the timer slack of the thread that makes it.
func with(slack time.Duration, call func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := setOwn(slack); err != nil {
		return err
	}
	err := call()
	if slack != usual {
		err = errors.Join(err, setOwn(usual))
	}
	return err
}

// setOwn sets the timer slack of the calling thread.
func setOwn(slack time.Duration) error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack.Nanoseconds()), 0, 0, 0); err != nil {
		return fmt.Errorf("set timer slack: %w", err)
	}
	return nil
}
