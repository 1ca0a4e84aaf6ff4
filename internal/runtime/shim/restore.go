package main

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/go-runc"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/runtime/shim/builtin"
	"github.com/berth-run/berth/internal/runtime/shim/child"
	"github.com/berth-run/berth/internal/runtime/shim/record"
	"github.com/berth-run/berth/internal/runtime/shim/terminal"
)

// restore continues with the containers of a shim before. pidfds has descriptors of their first processes, from
// somebody who lived when they ended.
func (k *keeper) restore(tasks string, pidfds map[string]int) {
	files, _ := filepath.Glob(filepath.Join(tasks, "*", "*", "task.json"))
	for _, file := range files {
		recorded, err := record.Read(file)
		if err != nil {
			warn(file, err)
			continue
		}
		pidfd, ok := pidfds[recorded.ID]
		if ok && recorded.Init.Repeated {
			_ = unix.Close(pidfd) // it may be of the process before
			ok = false
		}
		if !ok {
			pidfd = -1
		}
		k.restoreContainer(recorded, pidfd)
	}
}

func (k *keeper) restoreContainer(r record.Container, pidfd int) {
	c := newContainer(r)
	c.oom = r.OOMKills
	if r.Init.Phase == record.Creating {
		// Its creation is repeated. The other containers do not wait until runc has removed it.
		if err := k.registry.reserve(r.ID); err != nil {
			warn(r.ID, err)
			return
		}
		go func() {
			c.discard()
			k.registry.set(r.ID, nil)
		}()
		return
	}
	if r.Boot == k.boot && c.startFailed() {
		k.repeat(c)
		return
	}
	for id, state := range r.Execs {
		c.execs[id] = newProcess(id, state)
	}
	if r.Boot == k.boot {
		if err := k.openCgroup(c, r.Cgroups); err != nil && !errors.Is(err, os.ErrNotExist) {
			warn(r.ID, err)
		}
		if c.cgroup != nil {
			c.paused = c.cgroup.Frozen()
		}
		k.reportOOM(c)
	}
	k.registry.set(r.ID, c)
	for _, p := range c.execs {
		k.adopt(c, p, -1)
	}
	k.adopt(c, c.init, pidfd)
	if r.Init.Phase == record.Created && r.Init.Pid != 0 {
		c.correctPhase()
	}
}

// waits reports whether the first process of a container waits for its start: runc keeps a FIFO until then.
func (c *container) waits() bool {
	_, err := os.Stat(builtin.FIFO(c.stateDir()))
	return !errors.Is(err, os.ErrNotExist)
}

// correctPhase finds whether a container was started by a shim that could not record it.
func (c *container) correctPhase() {
	if c.waits() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.init.state.Phase == record.Created {
		c.init.state.Phase = record.Running
		_ = c.save() // the next shim finds it again
	}
}

// adopt follows a process of a shim before. pidfd is -1, or a descriptor of the process.
func (k *keeper) adopt(c *container, p *process, pidfd int) {
	state := p.state
	if state.Phase == record.Exited {
		close(p.done)
		p.stdio.Reopen(k.paths(c, p))
		go p.finish()
		return
	}
	p.stdio.Reopen(k.paths(c, p))
	if state.Pid == 0 {
		return // a checkpoint that was not restored
	}
	if c.record.Boot != k.boot {
		k.lost(c, p)
		return
	}
	if state.Console != 0 {
		p.console = terminal.Watch(state.Console, state.ConsoleStarted)
	}
	if exits, ok := k.reaper.Own(state.Pid); ok {
		p.pidfd, _ = unix.PidfdOpen(state.Pid, 0)
		go func() { k.ended(c, p, <-exits) }()
		return
	}
	if pidfd < 0 || !child.Is(pidfd, state.Pid, state.Started) {
		fd, ok := child.Open(state.Pid, state.Started)
		if !ok {
			k.lost(c, p)
			return
		}
		pidfd = fd
	}
	p.pidfd = pidfd
	exits, err := child.Watch(state.Pid, pidfd)
	if err != nil {
		warn(c.record.ID, err)
		return
	}
	go func() { k.ended(c, p, <-exits) }()
}

// lost records that a process has ended with an unknown exit code. It publishes the exit in the background: a shim that
// starts must not wait for an agent that is away.
func (k *keeper) lost(c *container, p *process) {
	exit := runc.Exit{Timestamp: time.Now(), Pid: p.state.Pid, Status: child.UnknownStatus}
	c.setExit(p, exit.Status, exit.Timestamp)
	go func() {
		endOthers(c, p)
		k.publishExit(c, p, exit, 0)
		p.finish()
	}()
}
