package dockerstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/retry"
)

// command is a command that Docker runs in a container.
type command struct {
	docker    Docker
	container string
	id        string
}

// create prepares a command.
func (s *Streams) create(ctx context.Context, container string, o client.ExecCreateOptions) (*command, error) {
	o.DetachKeys = noDetach
	created, err := s.docker.ExecCreate(ctx, container, o)
	if err != nil {
		return nil, fmt.Errorf("run command in container %s: %w", container, err)
	}
	return &command{docker: s.docker, container: container, id: created.ID}, nil
}

// start starts the command, and returns its streams.
func (c *command) start(ctx context.Context, terminal bool, size client.ConsoleSize) (*client.HijackedResponse, error) {
	r, err := c.docker.ExecAttach(ctx, c.id, client.ExecAttachOptions{TTY: terminal, ConsoleSize: size})
	if err != nil {
		return nil, fmt.Errorf("run command in container %s: %w", c.container, err)
	}
	return &r.HijackedResponse, nil
}

// notStarted is the error for a command that could not be started, such as a program that does not exist.
type notStarted struct{ code int }

func (e *notStarted) Error() string { return "the command could not be started" }

// wait waits for the end of a command whose output has ended, and returns its exit code. Docker notices the end of the
// process a little later than the end of its output. The process may also close its output and run on.
func (c *command) wait(ctx context.Context) (code int, err error) {
	pauses := retry.Doubling(time.Millisecond, 200*time.Millisecond)
	for {
		r, err := c.docker.ExecInspect(ctx, c.id, client.ExecInspectOptions{})
		if err != nil {
			return 0, fmt.Errorf("look at command in container %s: %w", c.container, err)
		}
		if !r.Running {
			if r.PID == 0 && r.ExitCode != 0 {
				return r.ExitCode, &notStarted{r.ExitCode}
			}
			return r.ExitCode, nil
		}
		if p, err := openProcess(r.PID, c.container); err == nil {
			err = p.wait(ctx)
			p.close()
			if err != nil {
				return 0, err
			}
		}
		if err := retry.Sleep(ctx, pauses.Step()); err != nil {
			return 0, err
		}
	}
}

// signal sends a signal to the process group of a command. It waits until Docker has started the command. found is
// false if the command has ended.
func (c *command) signal(ctx context.Context, signal unix.Signal) (found bool, err error) {
	pauses := retry.Doubling(5*time.Millisecond, 500*time.Millisecond)
	for {
		r, err := c.docker.ExecInspect(ctx, c.id, client.ExecInspectOptions{})
		switch {
		case errdefs.IsNotFound(err): // with its container
			return false, nil
		case err != nil:
			return false, fmt.Errorf("look at command in container %s: %w", c.container, err)
		case r.PID != 0 && !r.Running:
			return false, nil
		case r.PID != 0:
			return signalGroup(r.PID, c.container, signal)
		}
		if err := retry.Sleep(ctx, pauses.Step()); err != nil {
			return false, err
		}
	}
}

// signalGroup sends a signal to a process and its process group. The process leads the group, because each command has
// a session of its own.
func signalGroup(pid int, container string, signal unix.Signal) (found bool, err error) {
	p, err := openProcess(pid, container)
	if errors.Is(err, os.ErrProcessDone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer p.close()
	if err := unix.Kill(-pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return false, fmt.Errorf("signal process group %d: %w", pid, err)
	}
	if err := unix.PidfdSendSignal(p.fd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return false, fmt.Errorf("signal process %d: %w", pid, err)
	}
	return true, nil
}

// process is a process of a container.
type process struct {
	fd   int // a pidfd
	file *os.File
}

// openProcess opens a process by its ID. The ID may belong to another process by now. The container's process is in a
// cgroup with the container's ID. The error for any other process is os.ErrProcessDone.
func openProcess(pid int, container string) (*process, error) {
	if pid <= 1 {
		return nil, fmt.Errorf("open process %d: %w", pid, os.ErrProcessDone)
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, os.ErrProcessDone
	}
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	p := &process{fd: fd, file: os.NewFile(uintptr(fd), "pidfd")}
	cgroups, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil || !strings.Contains(string(cgroups), container) {
		p.close()
		return nil, os.ErrProcessDone
	}
	return p, nil
}

func (p *process) close() { _ = p.file.Close() }

// wait waits until the process has ended.
func (p *process) wait(ctx context.Context) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = p.file.SetReadDeadline(time.Unix(1, 0)) })()
	err = raw.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		return err == nil && n > 0
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
