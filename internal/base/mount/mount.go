package mount

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childName is the child's argv[0]. Main recognises the child by this name.
const childName = "berth-mount"

// killGrace is how long to wait for a killed child. A child that does not hang in the kernel ends at once.
const killGrace = time.Second

// Call is one call of mount(2).
type Call struct {
	Source, Target, Type string
	Flags                uintptr
	// Data are the file system's options, joined by commas.
	Data string
}

// request is the message that a child reads from its standard input.
type request struct {
	Mount   *Call  `json:",omitempty"`
	Unmount string `json:",omitempty"`
	Flags   int    `json:",omitempty"` // of umount2(2)
}

// Main is the main function of a child. handled is false if the process was not started as a child. code is the exit
// code.
func Main(args []string, stdin io.Reader, stdout io.Writer) (handled bool, code int) {
	if len(args) == 0 || args[0] != childName {
		return false, 0
	}
	var r request
	if err := json.NewDecoder(stdin).Decode(&r); err != nil {
		fmt.Fprintf(stdout, "read request: %v", err)
		return true, 1
	}
	var err error
	if m := r.Mount; m != nil {
		err = unix.Mount(m.Source, m.Target, m.Type, m.Flags, m.Data)
	} else {
		err = unix.Unmount(r.Unmount, r.Flags)
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		_ = json.NewEncoder(stdout).Encode(int(errno))
		return true, 1
	}
	return true, 0
}

// Runner calls the kernel in child processes. The zero value is ready to use.
type Runner struct {
	// Program is the binary of the child. "" is the binary of this process, whose main must begin with Main.
	Program string
}

// Stuck is the error for a child that hangs in the kernel although it was killed. It ends when the kernel releases it.
// Its mount or unmount may still happen then.
type Stuck struct {
	PID int
	// What is "mount" or "unmount" with its paths.
	What string
	// Cause is why the caller no longer waits for it.
	Cause error
}

func (s *Stuck) Error() string {
	return fmt.Sprintf("%s: process %d was killed and still hangs in the kernel: %v", s.What, s.PID, s.Cause)
}

func (s *Stuck) Unwrap() error { return s.Cause }

// Mount mounts, or fails when ctx ends. An error of the kernel wraps its syscall.Errno.
func (r Runner) Mount(ctx context.Context, c Call) error {
	return r.run(ctx, "mount "+c.Source+" on "+c.Target, request{Mount: &c})
}

// Unmount unmounts with flags of umount2(2), or fails when ctx ends. It does not follow a link.
func (r Runner) Unmount(ctx context.Context, target string, flags int) error {
	return r.run(ctx, "unmount "+target, request{Unmount: target, Flags: flags | unix.UMOUNT_NOFOLLOW})
}

func (r Runner) run(ctx context.Context, what string, q request) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	input, err := json.Marshal(q)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	program := r.Program
	if program == "" {
		program = "/proc/self/exe"
	}
	var answer bytes.Buffer
	cmd := &exec.Cmd{
		Path: program, Args: []string{childName}, Stdin: bytes.NewReader(input), Stdout: &answer,
		Env: []string{}, Dir: "/", SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true},
		WaitDelay: killGrace,
	}
	started, ended := make(chan error, 1), make(chan error, 1)
	// A goroutine of its own, because a child that hangs outlives this call. It keeps its thread, because the kernel
	// kills the child when the thread that started it ends.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("%s: start child process: %w", what, err)
	}
	select {
	case err := <-ended:
		return result(what, answer.String(), err)
	case <-ctx.Done():
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	timer := time.NewTimer(killGrace)
	defer timer.Stop()
	select {
	case err := <-ended:
		if err == nil { // it succeeded just before it was killed
			return nil
		}
		return fmt.Errorf("%s: the kernel has not answered: %w", what, context.Cause(ctx))
	case <-timer.C:
		return &Stuck{PID: cmd.Process.Pid, What: what, Cause: context.Cause(ctx)}
	}
}

// result is the result that an ended child has reported.
func result(what, answer string, err error) error {
	if err == nil {
		return nil
	}
	var errno int
	if json.Unmarshal([]byte(answer), &errno) == nil && errno != 0 {
		return fmt.Errorf("%s: %w", what, syscall.Errno(errno))
	}
	return fmt.Errorf("%s: %w: %s", what, err, strings.TrimSpace(answer))
}

// Kernel reports whether the kernel supports a file system now. The first mount may still load it as a module.
func Kernel(fsType string) (bool, error) {
	text, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(text)) {
		if name := strings.Fields(line); len(name) > 0 && name[len(name)-1] == fsType {
			return true, nil
		}
	}
	return false, nil
}
