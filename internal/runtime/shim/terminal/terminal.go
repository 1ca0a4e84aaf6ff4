package terminal

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/runtime/shim/child"
	"github.com/berth-run/berth/internal/runtime/shim/stdio"
)

// Command is the argument with which the program calls Run.
const Command = "console"

// masterFD is the descriptor of the terminal in the process that owns it.
const masterFD = 3

// Run copies between a terminal and the FIFOs of its container until the container has ended. This process owns the
// terminal, so that it outlives the shim.
func Run() {
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP, syscall.SIGINT)
	// The shim gets the terminal by pidfd_getfd. Where Yama allows that only to a parent, it needs permission.
	_ = unix.Prctl(unix.PR_SET_PTRACER, ^uintptr(0), 0, 0, 0)
	master := os.NewFile(masterFD, "terminal")
	go func() { _, _ = io.Copy(master, os.Stdin) }()
	_, _ = io.Copy(os.Stdout, master) // fails when the last process of the terminal has ended
}

// Start starts the owner of a terminal, whose standard I/O are the FIFOs of s. ended is closed when it has ended.
func Start(r *child.Reaper, s *stdio.IO, master *os.File) (pid int, ended <-chan struct{}, err error) {
	command := exec.CommandContext(context.Background(), "/proc/self/exe", Command) // it outlives the call
	command.Args[0] = os.Args[0]
	s.Set(command)
	command.Stderr = nil
	command.ExtraFiles = []*os.File{master}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	command.Env = append(os.Environ(), "GOMAXPROCS=1")
	exits, err := r.Start(command)
	if err != nil {
		return 0, nil, fmt.Errorf("start owner of the terminal: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = r.Wait(command, exits)
	}()
	return command.Process.Pid, done, s.CloseAfterStart()
}

// Resize sets the size of the terminal that a process owns. started is in clock ticks after the boot, as in package
// child.
func Resize(pid int, started uint64, width, height uint32) error {
	owner, ok := child.Open(pid, started)
	if !ok {
		return nil // the container has ended
	}
	defer func() { _ = unix.Close(owner) }()
	master, err := unix.PidfdGetfd(owner, masterFD, 0)
	if err != nil {
		return fmt.Errorf("get terminal: %w", err)
	}
	defer func() { _ = unix.Close(master) }()
	return unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)})
}

// Watch returns a channel that closes when the owner of a terminal, which an earlier shim has started, has ended.
func Watch(pid int, started uint64) <-chan struct{} {
	done := make(chan struct{})
	fd, ok := child.Open(pid, started)
	if !ok {
		close(done)
		return done
	}
	exits, err := child.Watch(pid, fd)
	_ = unix.Close(fd)
	if err != nil {
		close(done)
		return done
	}
	go func() {
		defer close(done)
		<-exits
	}()
	return done
}
