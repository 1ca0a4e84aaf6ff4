package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/console"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"github.com/containerd/go-runc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/runtime/shim/cgroup"
	"github.com/berth-run/berth/internal/runtime/shim/child"
	"github.com/berth-run/berth/internal/runtime/shim/oci"
	"github.com/berth-run/berth/internal/runtime/shim/record"
	"github.com/berth-run/berth/internal/runtime/shim/stdio"
	"github.com/berth-run/berth/internal/runtime/shim/terminal"
)

// container is one container and its processes.
type container struct {
	runc *runc.Runc
	spec func() *oci.Spec // read once: each command that starts needs it

	mu     sync.Mutex // never held while another program runs
	record record.Container
	init   *process
	execs  map[string]*process
	cgroup *cgroup.Group // nil until there is one
	oom    uint64        // OOM kills that were published. The record has the number of those that containerd knows of.
	paused bool
	// starting is set when the first process may run from now on.
	starting bool
	// deleted is set when the record's file is removed for ever.
	deleted bool
}

// newContainer makes the container of a record, without executed processes.
func newContainer(r record.Container) *container {
	return &container{
		runc: runtimeOf(r), spec: sync.OnceValue(func() *oci.Spec { return oci.ReadSpec(r.Bundle) }), record: r,
		init: newProcess("", r.Init), execs: map[string]*process{},
	}
}

// process is the first process of a container, or one that was executed in it. The lock of the container guards it.
type process struct {
	id    string // empty for the first process
	state record.Process
	spec  *specs.Process // of an executed process that has not started
	pidfd int            // -1 if there is none
	stdio stdio.IO
	done  chan struct{} // closed when the exit is known and recorded
	// console is closed when the owner of the terminal has ended. nil if there is none.
	console <-chan struct{}
}

func newProcess(id string, state record.Process) *process {
	return &process{id: id, state: state, pidfd: -1, done: make(chan struct{})}
}

// runtimeOf is the OCI runtime of a container.
func runtimeOf(r record.Container) *runc.Runc {
	return &runc.Runc{
		Command:       r.Runtime.Binary,
		Log:           filepath.Join(r.Bundle, "log.json"),
		LogFormat:     runc.JSON,
		PdeathSignal:  unix.SIGKILL,
		Root:          filepath.Join(r.Runtime.Root, r.Namespace),
		SystemdCgroup: r.Runtime.SystemdCgroup,
	}
}

// process returns the process with an ID.
func (c *container) process(id string) (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == "" {
		return c.init, nil
	}
	if p, ok := c.execs[id]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("process %s of container %s: %w", id, c.record.ID, errdefs.ErrNotFound)
}

// save writes the record, unless it was removed. Call it with the lock.
func (c *container) save() error {
	if c.deleted {
		return nil
	}
	c.record.Init = c.init.state
	c.record.Execs = map[string]record.Process{}
	for id, p := range c.execs {
		if p.state.Phase != record.Created {
			c.record.Execs[id] = p.state
		}
	}
	return c.record.Write()
}

// removeRecord removes the record for ever.
func (c *container) removeRecord() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleted = true
	if err := os.Remove(record.File(c.record.Bundle)); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil // removed by an earlier call, or never written
}

// stateDir is the directory where runc keeps the state of the container.
func (c *container) stateDir() string { return filepath.Join(c.runc.Root, c.record.ID) }

// pidFile is where the OCI runtime writes the ID of the first process.
func (c *container) pidFile() string { return filepath.Join(c.record.Bundle, "init.pid") }

// startable returns the first process of a container that may run from now on, and a descriptor of it to close.
func (c *container) startable() (pid, pidfd int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.init.pidfd < 0 {
		return 0, -1, fmt.Errorf("start process %d: it has ended: %w", c.init.state.Pid, errdefs.ErrFailedPrecondition)
	}
	c.starting = true
	pidfd, err = unix.FcntlInt(uintptr(c.init.pidfd), unix.F_DUPFD_CLOEXEC, 0)
	return c.init.state.Pid, pidfd, err
}

// group returns the cgroup, or nil.
func (c *container) group() *cgroup.Group {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cgroup
}

// stateOf returns the record of a process.
func (c *container) stateOf(p *process) record.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.state
}

// signal sends a signal to a process.
func (c *container) signal(p *process, signal unix.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case p.state.Phase == record.Exited:
		return fmt.Errorf("process %d has ended: %w", p.state.Pid, errdefs.ErrNotFound)
	case p.state.Pid == 0:
		return fmt.Errorf("process %q has not started: %w", p.id, errdefs.ErrFailedPrecondition)
	case p.pidfd < 0:
		return fmt.Errorf("process %d has ended: %w", p.state.Pid, errdefs.ErrNotFound)
	}
	if p.id != "" && signal == unix.SIGKILL {
		killGroup(p.pidfd, p.state.Pid)
	}
	err := unix.PidfdSendSignal(p.pidfd, signal, nil, 0)
	if err == unix.ESRCH {
		return fmt.Errorf("process %d has ended: %w", p.state.Pid, errdefs.ErrNotFound)
	}
	return err
}

// killGroup kills the process group of an executed command, which leads it: what the command has started must not stay
// in the container.
func killGroup(pidfd, pid int) {
	const processGroup = 1 << 2 // PIDFD_SIGNAL_PROCESS_GROUP, since Linux 6.9
	if unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, processGroup) != unix.EINVAL {
		return
	}
	if pid > 1 && unix.PidfdSendSignal(pidfd, 0, nil, 0) == nil { // the number is still the command's
		_ = unix.Kill(-pid, unix.SIGKILL)
	}
}

// wait waits until a process has ended and its exit is recorded.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitRead waits until the output of a process that has ended has been read, or the time is over.
func (p *process) awaitRead(limit time.Duration) {
	start := time.Now()
	if p.console != nil && limit > 0 {
		select {
		case <-p.console:
		case <-time.After(limit):
		}
	}
	p.stdio.AwaitRead(limit - time.Since(start))
}

// finish ends the output of a process that has ended, when it has been read.
func (p *process) finish() {
	if p.console != nil {
		<-p.console // it writes the rest of the output
	}
	p.stdio.Drain()
}

// setExit records the exit of a process, and whether it was the first process of a container that never ran. It returns
// false if the exit was known.
func (c *container) setExit(p *process, status int, at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.state.Phase == record.Exited {
		return false
	}
	p.state.NeverRan = p == c.init && p.state.Phase == record.Created && !c.starting && c.waits()
	p.state.Phase, p.state.Status, p.state.ExitedAt = record.Exited, uint32(status), at.UTC()
	if p.pidfd >= 0 {
		_ = unix.Close(p.pidfd)
		p.pidfd = -1
	}
	_ = c.save() // a next shim finds the process gone, and the code unknown
	return true
}

// setInputClosed records that the standard input of a process has ended.
func (c *container) setInputClosed(p *process) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.state.InputClosed = true
	return c.save()
}

// newOOMKills returns the number of OOM kills, and whether it is larger than before.
func (c *container) newOOMKills() (kills uint64, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cgroup == nil {
		return 0, false
	}
	kills = c.cgroup.OOMKills()
	if kills <= c.oom {
		return kills, false
	}
	c.oom = kills
	return kills, true
}

// setKnownOOMs records how many OOM kills containerd knows of. A next shim publishes the others.
func (c *container) setKnownOOMs(kills uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record.OOMKills = kills
	_ = c.save() // a next shim publishes it again, which is harmless
}

// all returns the executed processes.
func (c *container) all() []*process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.execs))
}

// running returns the executed processes that have started and not ended.
func (c *container) running() []*process {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*process
	for p := range maps.Values(c.execs) {
		if p.state.Phase == record.Running {
			all = append(all, p)
		}
	}
	return all
}

// terminal waits for a terminal that runc has made, and starts its owner.
func (c *container) terminal(r *child.Reaper, p *process, socket *runc.Socket) error {
	master, err := socket.ReceiveMaster()
	if err != nil {
		return fmt.Errorf("receive terminal: %w", err)
	}
	defer master.Close()
	file, ok := master.(console.File)
	if !ok {
		return fmt.Errorf("receive terminal: it is a %T", master)
	}
	dup, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("duplicate terminal: %w", err)
	}
	pty := os.NewFile(uintptr(dup), "terminal")
	defer pty.Close()
	pid, ended, err := terminal.Start(r, &p.stdio, pty)
	if err != nil {
		return err
	}
	stat, err := child.ReadStat(pid)
	c.mu.Lock()
	defer c.mu.Unlock()
	p.console = ended
	if err == nil {
		p.state.Console, p.state.ConsoleStarted = pid, stat.Started
	}
	return nil
}

// root is the directory of the container's root file system.
func (c *container) root() string { return filepath.Join(c.record.Bundle, "rootfs") }

// unfinished returns the file that runc writes before it renames it to a PID file. A runc that is killed leaves it.
func unfinished(pidFile string) string {
	dir, name := filepath.Split(pidFile)
	return filepath.Join(dir, "."+name)
}

// discard removes a container whose creation has failed, or was cut short by the end of a shim.
func (c *container) discard() {
	ctx := context.Background()
	if err := c.runc.Delete(ctx, c.record.ID, &runc.DeleteOpts{Force: true}); err != nil && !oci.IsGone(err) {
		warn(c.record.ID, err)
	}
	// A runtime that was killed before it had recorded the container has left its cgroup.
	if err := cgroup.Remove(c.record.ID, c.spec().Cgroup()); err != nil {
		warn(c.record.ID, err)
	}
	if err := mount.UnmountRecursive(c.root(), 0); err != nil {
		warn(c.record.ID, err)
	}
	// runc does not create a container while the file is there that it renames to the PID file.
	if err := os.Remove(unfinished(c.pidFile())); err != nil && !errors.Is(err, os.ErrNotExist) {
		warn(c.record.ID, err)
	}
	if err := c.removeRecord(); err != nil {
		warn(c.record.ID, err)
	}
	_ = c.init.stdio.Close()
}

// io is the standard I/O for runc. A terminal is none: runc makes it.
func (p *process) io(socket runc.ConsoleSocket) runc.IO {
	if socket != nil {
		return nil
	}
	return &p.stdio
}
