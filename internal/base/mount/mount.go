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

// childName is the child's argv[0], by which Main knows it.
const childName = "berth-mount"

// lastWords is how long a killed child is waited for: one that the kernel lets
// go of is gone at once.
const lastWords = time.Second

// Call is one call of mount(2).
type Call struct {
	Source, Target, Type string
	Flags                uintptr
	// Data are the file system's options, joined by commas.
	Data string
}

// request is what a child is asked on its standard input.
type request struct {
	Mount   *Call  `json:",omitempty"`
	Unmount string `json:",omitempty"`
	Flags   int    `json:",omitempty"` // of umount2(2)
}

// Main is the child's part: it does what its parent asks and reports whether the
// process was started for that. code is its exit code.
func Main(args []string, stdin io.Reader, stdout io.Writer) (handled bool, code int) {
	if len(args) == 0 || args[0] != childName {
		return false, 0
	}
	var r request
	if err := json.NewDecoder(stdin).Decode(&r); err != nil {
		fmt.Fprintf(stdout, "read what to mount: %v", err)
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

// Runner calls the kernel in children. The zero value is ready.
type Runner struct {
	// Program is executed as the child; "" is this process's own binary, whose
	// main has to begin with Main.
	Program string
}

// Stuck is a child that the kernel holds although it was killed. It ends when
// the kernel lets go of it; what it was to do may still be done then.
type Stuck struct {
	PID int
	// What it does: "mount" or "unmount", and where.
	What string
	// Cause is why it was waited for no longer.
	Cause error
}

func (s *Stuck) Error() string {
	return fmt.Sprintf("%s: process %d was killed and still hangs in the kernel: %v", s.What, s.PID, s.Cause)
}

func (s *Stuck) Unwrap() error { return s.Cause }

// Mount mounts, until ctx ends. The kernel's answer is a syscall.Errno within.
func (r Runner) Mount(ctx context.Context, c Call) error {
	return r.run(ctx, "mount "+c.Source+" on "+c.Target, request{Mount: &c})
}

// Unmount unmounts, until ctx ends, with flags of umount2(2). A link is not followed.
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
		WaitDelay: lastWords,
	}
	started, ended := make(chan error, 1), make(chan error, 1)
	// Its own goroutine, as a child that hangs outlives this call. It keeps its
	// thread: the kernel kills the child when the thread that started it ends.
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
		return fmt.Errorf("%s: start a process for it: %w", what, err)
	}
	select {
	case err := <-ended:
		return result(what, answer.String(), err)
	case <-ctx.Done():
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case err := <-ended:
		if err == nil { // it was done just then
			return nil
		}
		return fmt.Errorf("%s: the kernel has not answered: %w", what, context.Cause(ctx))
	case <-timer.C:
		return &Stuck{PID: cmd.Process.Pid, What: what, Cause: context.Cause(ctx)}
	}
}

// result is what a child that has ended says.
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

// Kernel says whether the kernel has a file system of that name now; one that is
// a module may come when it is mounted.
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
