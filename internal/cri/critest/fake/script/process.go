package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Forever is the wait of a process that only a signal can end.
const Forever time.Duration = -1

// logPeriod is the time between two bursts of lines of the log action.
const logPeriod = 100 * time.Millisecond

// Process is one run of the workload. It is not safe for concurrent use.
type Process struct {
	// TermCode is the exit code if the process gets SIGTERM now.
	TermCode int32
	// IgnoresTerm says that SIGTERM has no effect now.
	IgnoresTerm bool

	actions [][]string
	config  *runtimeapi.ContainerConfig
	stdout  io.Writer
	stderr  io.Writer

	lines, due int // progress of the log action
}

// New makes the process that argv starts in a container with this config. The only program in the container is
// /workload.
func New(argv []string, config *runtimeapi.ContainerConfig, stdout, stderr io.Writer) (*Process, error) {
	if p := argv[0]; p != "/workload" && p != "workload" {
		return nil, fmt.Errorf("exec: %q: stat %s: no such file or directory", p, p)
	}
	p := &Process{
		config: config, stdout: stdout, stderr: stderr,
		TermCode: 2, // the exit code of a Go program with PID 1 that does not catch SIGTERM
	}
	for args := argv[1:]; ; {
		at := slices.Index(args, "then")
		if at < 0 {
			p.actions = append(p.actions, args)
			return p, nil
		}
		p.actions, args = append(p.actions, args[:at]), args[at+1:]
	}
}

// Advance runs the process until a step takes time. It returns that time, after which the caller calls Advance again,
// or that the process has ended with an exit code.
func (p *Process) Advance() (wait time.Duration, ended bool, code int32) {
	for len(p.actions) > 0 {
		action := p.actions[0]
		wait, more, err := p.act(action)
		if !more {
			p.actions = p.actions[1:]
		}
		var exit exitError
		switch {
		case errors.As(err, &exit):
			return 0, true, int32(exit)
		case err != nil:
			fmt.Fprintln(p.stderr, "workload:", err)
			return 0, true, 1
		case wait != 0:
			return wait, false, 0
		}
	}
	return 0, true, 0
}

// exitError ends the process with an exit code.
type exitError int32

func (e exitError) Error() string { return "exit " + strconv.Itoa(int(e)) }

// act runs one action, or the next part of an action that has returned more.
func (p *Process) act(action []string) (wait time.Duration, more bool, err error) {
	takesArgs := []string{"wait", "write", "append", "cat", "exists"}
	if len(action) == 0 || len(action) == 1 && slices.Contains(takesArgs, action[0]) {
		return 0, false, errors.New("usage: workload ACTION [ARG...] [then ACTION]")
	}
	args := action[1:]
	switch action[0] {
	case "print":
		return 0, false, printLines(p.stdout, args)
	case "error":
		return 0, false, printLines(p.stderr, args)
	case "sleep":
		p.TermCode = int32(number(args, 0, 0))
		return Forever, true, nil
	case "serve":
		p.TermCode = 0
		return Forever, true, nil
	case "stubborn":
		p.IgnoresTerm = true
		return Forever, true, nil
	case "wait":
		wait, err = time.ParseDuration(args[0])
		return wait, false, err
	case "exit":
		if len(args) > 1 {
			p.actions = slices.Insert(p.actions, 1, []string{"wait", args[1]}, []string{"exit", args[0]})
			return 0, false, nil
		}
		return 0, false, exitError(number(args, 0, 0))
	case "true":
		return 0, false, exitError(0)
	case "false":
		return 0, false, exitError(1)
	case "log":
		if p.logLines(args) {
			return logPeriod, true, nil
		}
		return 0, false, nil
	}
	return 0, false, p.actOnFiles(action[0], args)
}

func (p *Process) actOnFiles(verb string, args []string) error {
	switch verb {
	case "env":
		for _, name := range args {
			fmt.Fprintln(p.stdout, p.getenv(name))
		}
		return nil
	case "write":
		return p.write(args, os.O_TRUNC)
	case "append":
		return p.write(args, os.O_APPEND)
	case "cat", "exists":
		for _, name := range args {
			file, _, err := p.hostPath(name)
			if err != nil {
				return err
			}
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if verb == "cat" {
				_, _ = p.stdout.Write(content)
			}
		}
		return nil
	}
	return fmt.Errorf("action %q is not supported by the fake", verb)
}

// logLines prints one burst of lines and reports whether more bursts follow.
func (p *Process) logLines(args []string) (more bool) {
	p.TermCode = 0
	const bursts = int(time.Second / logPeriod) // per second
	rate, length, count := number(args, 0, 1), number(args, 1, 80), number(args, 2, -1)
	for p.due += rate; p.due >= bursts; p.due -= bursts {
		fmt.Fprintf(p.stdout, "%0*d\n", length, p.lines)
		if p.lines++; p.lines == count {
			return false
		}
	}
	return true
}

func (p *Process) getenv(name string) string {
	for _, kv := range p.config.Envs {
		if kv.Key == name {
			return string(kv.Value)
		}
	}
	return ""
}

// hostPath returns the path of a container's file on the host.
func (p *Process) hostPath(name string) (file string, readonly bool, err error) {
	if !path.IsAbs(name) {
		name = path.Join("/", p.config.WorkingDir, name)
	}
	for _, m := range p.config.Mounts {
		if below, ok := strings.CutPrefix(name, strings.TrimSuffix(m.ContainerPath, "/")+"/"); ok {
			return filepath.Join(m.HostPath, below), m.Readonly, nil
		}
	}
	return "", false, fmt.Errorf("open %s: no such file or directory", name)
}

func (p *Process) write(args []string, mode int) error {
	name, readonly, err := p.hostPath(args[0])
	if err != nil {
		return err
	}
	if readonly {
		return fmt.Errorf("open %s: read-only file system", args[0])
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|mode, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(printLines(file, args[1:]), file.Close())
}

// Finish runs the process to its end. ok is false if ctx ended before the process.
func (p *Process) Finish(ctx context.Context) (code int32, ok bool) {
	for {
		wait, ended, code := p.Advance()
		switch {
		case ended:
			return code, true
		case wait == Forever:
			<-ctx.Done()
			return 0, false
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return 0, false
		case <-timer.C:
		}
	}
}

func printLines(to io.Writer, lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintln(to, line); err != nil {
			return err
		}
	}
	return nil
}

// number is the argument at an index, or a default if that argument is missing or not a number.
func number(args []string, at, otherwise int) int {
	if at < len(args) {
		if n, err := strconv.Atoi(args[at]); err == nil {
			return n
		}
	}
	return otherwise
}
