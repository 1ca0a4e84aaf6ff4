package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	eventstypes "github.com/containerd/containerd/api/events"
	"github.com/containerd/go-runc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-run/berth/internal/base/sysmon"
	"github.com/berth-run/berth/internal/runtime/shim/builtin"
	"github.com/berth-run/berth/internal/runtime/shim/cgroup"
	"github.com/berth-run/berth/internal/runtime/shim/child"
	"github.com/berth-run/berth/internal/runtime/shim/create"
	"github.com/berth-run/berth/internal/runtime/shim/criu"
	"github.com/berth-run/berth/internal/runtime/shim/oci"
	"github.com/berth-run/berth/internal/runtime/shim/outbox"
	"github.com/berth-run/berth/internal/runtime/shim/record"
	"github.com/berth-run/berth/internal/runtime/shim/rootfs"
	"github.com/berth-run/berth/internal/runtime/shim/stdio"
)

// keeper creates and removes containers, and follows their processes.
type keeper struct {
	registry *registry
	reaper   *child.Reaper
	outbox   *outbox.Outbox
	groups   cgroup.Finder
	ooms     cgroup.OOMWatch
	boot     string // the kernel's ID of this boot
	exits    string // directory for the exits of deleted containers
	criu     criu.Lock
	limits   string // file with the limits of logs
	builtin  string // path of the runc beside this program, whose state package builtin knows
	relaxes  bool   // this process may change the timer slack of others
}

// paths returns the files of a process's standard I/O. Only the first process of a container has a log.
func (k *keeper) paths(c *container, p *process) stdio.Paths {
	paths := stdio.Paths{In: p.state.Stdin, Out: p.state.Stdout, Err: p.state.Stderr, Terminal: p.state.Terminal,
		InputClosed: p.state.InputClosed, Repeated: p.state.Repeated}
	if p == c.init && c.record.Log != "" {
		paths.Log = &stdio.Log{Path: c.record.Log, Dir: c.record.Bundle, Limits: k.limits}
	}
	return paths
}

// create mounts a container's root file system and creates its first process.
func (k *keeper) create(ctx context.Context, c *container, root []*mountProto) error {
	if err := c.record.Write(); err != nil {
		return err
	}
	if err := rootfs.Mount(root, c.root()); err != nil {
		return err
	}
	if c.record.Runtime.Checkpoint != "" {
		// The reader of the output would be gone at the start.
		if err := k.openIO(ctx, c, c.init); err != nil {
			return err
		}
		return k.created(c, 0)
	}
	return k.createInit(ctx, c)
}

// createInit creates the first process of a container whose root file system is mounted.
func (k *keeper) createInit(ctx context.Context, c *container) error {
	if c.record.Runtime.Binary == k.builtin && !c.record.Runtime.SystemdCgroup {
		spec, err := create.Read(c.record.Bundle)
		if err != nil {
			return err
		}
		if create.Can(spec) {
			return k.createHere(ctx, c, spec)
		}
	}
	pidFile, frugal := c.pidFile(), k.frugal(ctx, c)
	if k.relaxes && c.record.Runtime.Binary == k.builtin {
		frugal = child.Relaxed(frugal) // the process that runc leaves waits until launch has restored it
	}
	return k.spawn(ctx, c, c.init, pidFile, func(socket runc.ConsoleSocket) error {
		err := c.runc.Create(frugal, c.record.ID, c.record.Bundle, &runc.CreateOpts{
			IO: c.init.io(socket), PidFile: pidFile, ConsoleSocket: socket, NoPivot: c.record.Runtime.NoPivotRoot,
			NoNewKeyring: c.record.Runtime.NoNewKeyring,
		})
		return oci.Error(c.runc.Log, "create", err)
	})
}

// createHere creates the first process of a container in this process, without runc.
func (k *keeper) createHere(ctx context.Context, c *container, spec *specs.Spec) error {
	if err := k.openIO(ctx, c, c.init); err != nil {
		return err
	}
	defer k.reaper.Leave()()
	pid := 0
	start := func() (err error) {
		r := c.record.Runtime
		pid, err = create.Run(create.Container{
			ID: c.record.ID, Root: c.runc.Root, Bundle: c.record.Bundle, NoPivotRoot: r.NoPivotRoot,
			NoNewKeyring: r.NoNewKeyring, Stdio: c.init.stdio.Files(),
		}, spec)
		return err
	}
	// A file system that does not answer may hold up the process that libcontainer starts.
	stop := context.AfterFunc(ctx, func() { _ = cgroup.Remove(c.record.ID, c.spec().Cgroup()) })
	var err error
	if k.relaxes {
		err = sysmon.Relaxed(start)
	} else {
		err = start()
	}
	if !stop() {
		err = context.Cause(ctx)
	}
	_ = c.init.stdio.CloseAfterStart()
	if err != nil {
		_ = c.init.stdio.Close()
		return fmt.Errorf("OCI runtime create failed: runc create failed: %w", err)
	}
	return k.created(c, pid)
}

// frugal is a context for calls of the runc beside this program that start a process. It then has one thread for Go
// code: its steps follow each other, and further threads only take memory. The process itself does not inherit this.
func (k *keeper) frugal(ctx context.Context, c *container) context.Context {
	if c.record.Runtime.Binary != k.builtin {
		return ctx
	}
	return runc.WithExtraEnv(ctx, "GOMAXPROCS=1")
}

// spawn runs the runtime for a process that stays after it: it opens the process's I/O, and follows the process.
func (k *keeper) spawn(ctx context.Context, c *container, p *process, pidFile string,
	run func(runc.ConsoleSocket) error) error {
	if err := k.openIO(ctx, c, p); err != nil {
		return err
	}
	return k.launch(c, p, pidFile, run)
}

// openIO opens the I/O of a process that will be started.
func (k *keeper) openIO(ctx context.Context, c *container, p *process) error {
	return p.stdio.Open(ctx, k.paths(c, p), stdio.Owner{
		UID: c.record.Runtime.IOUID, GID: c.record.Runtime.IOGID, Label: c.spec().Label(),
	})
}

// launch is spawn for a process whose I/O is open.
func (k *keeper) launch(c *container, p *process, pidFile string, run func(runc.ConsoleSocket) error) error {
	defer k.reaper.Begin()()
	if p.state.Terminal {
		socket, err := runc.NewTempConsoleSocket()
		if err != nil {
			return fmt.Errorf("make console socket: %w", err)
		}
		defer func() { _ = socket.Close() }()
		err = run(socket)
		if err == nil {
			err = c.terminal(k.reaper, p, socket)
		}
		if err != nil {
			_ = p.stdio.Close()
			return err
		}
	} else if err := run(nil); err != nil {
		_ = p.stdio.Close()
		return err
	}
	pid, err := runc.ReadPidFile(pidFile)
	if err != nil {
		return fmt.Errorf("read process ID: %w", err)
	}
	if p.id != "" {
		return k.follow(c, p, pid, record.Running)
	}
	if k.relaxes {
		err := sysmon.Restore(pid)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) { // it may have ended
			warn(c.record.ID, fmt.Errorf("restore the timer slack of process %d: %w", pid, err))
		}
	}
	return k.created(c, pid)
}

// created records that the first process of a container exists. pid is 0 for one that Start restores.
func (k *keeper) created(c *container, pid int) error {
	if pid == 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.init.state.Phase = record.Created
		return c.save()
	}
	paths, err := k.groups.Paths(pid)
	if err == nil {
		err = k.openCgroup(c, paths)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		warn(c.record.ID, err) // the container works without statistics
	}
	return k.follow(c, c.init, pid, record.Created)
}

// openCgroup opens a container's cgroup for statistics, and watches it for OOM kills.
func (k *keeper) openCgroup(c *container, paths map[string]string) error {
	group, err := k.groups.Open(c.record.ID, paths)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.cgroup, c.record.Cgroups = group, paths
	c.mu.Unlock()
	return k.ooms.Add(group, func() bool { return k.reportOOM(c) })
}

// follow waits for the exit of a child in the background.
func (k *keeper) follow(c *container, p *process, pid int, phase string) error {
	exits, pidfd := k.reaper.Follow(pid)
	stat, _ := child.ReadStat(pid) // it may have ended
	c.mu.Lock()
	p.state.Phase, p.state.Pid, p.state.Started, p.pidfd = phase, pid, stat.Started, pidfd
	err := c.save()
	c.mu.Unlock()
	go func() { k.ended(c, p, <-exits) }()
	return err
}

// reportOOM publishes that processes of a container were killed for lack of memory, if containerd does not know it.
func (k *keeper) reportOOM(c *container) bool {
	kills, ok := c.newOOMKills()
	if !ok {
		return false
	}
	k.outbox.Publish(c.record.Namespace, "/tasks/oom", &eventstypes.TaskOOM{ContainerID: c.record.ID},
		func() { c.setKnownOOMs(kills) })
	return true
}

// ended records the exit of a process, and ends its output when it has been read.
func (k *keeper) ended(c *container, p *process, exit runc.Exit) {
	// containerd stops reading soon after it knows of an exit, even if its reader has not begun.
	const reading = time.Second
	if p.id == "" && k.reportOOM(c) {
		const reason = time.Second // so that the reason is known before the exit
		k.outbox.Flush(reason)
	}
	endOthers(c, p)
	if c.setExit(p, exit.Status, exit.Timestamp) {
		k.publishExit(c, p, exit, reading)
	}
	p.finish()
}

// endOthers ends the further processes of a container when its first process has ended. The kernel does so unless the
// container shares its PID namespace.
func endOthers(c *container, p *process) {
	group := c.group()
	if p.id != "" || group == nil || c.spec().OwnPIDs() {
		return
	}
	if err := group.Kill(); err != nil && !errors.Is(err, os.ErrNotExist) {
		warn(c.record.ID, err)
	}
}

// publishExit publishes the recorded exit of a process when the output has been read, or after the given time.
func (k *keeper) publishExit(c *container, p *process, exit runc.Exit, reading time.Duration) {
	p.awaitRead(reading)
	id := p.id
	if id == "" {
		id = c.record.ID
	}
	k.outbox.Publish(c.record.Namespace, "/tasks/exit", &eventstypes.TaskExit{
		ContainerID: c.record.ID, ID: id, Pid: uint32(exit.Pid), ExitStatus: uint32(exit.Status),
		ExitedAt: timestamppb.New(exit.Timestamp),
	}, nil)
	close(p.done)
}

// startExec runs a command in a container.
func (k *keeper) startExec(ctx context.Context, c *container, p *process) error {
	pidFile := filepath.Join(c.record.Bundle, p.id+".pid")
	logFile := filepath.Join(c.record.Bundle, p.id+".json")
	defer func() {
		for _, file := range []string{logFile, pidFile, unfinished(pidFile)} {
			_ = os.Remove(file)
		}
	}()
	err := k.spawn(ctx, c, p, pidFile, func(socket runc.ConsoleSocket) error {
		err := c.runc.Exec(k.frugal(ctx, c), c.record.ID, *p.spec, &runc.ExecOpts{
			IO: p.io(socket), LogFile: logFile, PidFile: pidFile, ConsoleSocket: socket, Detach: true,
		})
		return oci.Error(logFile, "exec", err)
	})
	if err != nil && c.setExit(p, child.UnknownStatus, time.Now()) {
		close(p.done)
	}
	return err
}

// restoreCheckpoint starts a container from a checkpoint.
func (k *keeper) restoreCheckpoint(ctx context.Context, c *container) error {
	pidFile := c.pidFile()
	if err := os.MkdirAll(c.record.Runtime.CriuWork, 0o700); err != nil {
		return fmt.Errorf("make the directory for CRIU: %w", err)
	}
	if err := criu.ReplaceStdio(c.record.Bundle, c.record.Runtime.Checkpoint); err != nil {
		return err
	}
	return k.launch(c, c.init, pidFile, func(socket runc.ConsoleSocket) error {
		err := k.criu.WithRestoreConfig(c.record.Bundle, func() error {
			_, err := c.runc.Restore(ctx, c.record.ID, c.record.Bundle, &runc.RestoreOpts{
				CheckpointOpts: runc.CheckpointOpts{
					ImagePath: c.record.Runtime.Checkpoint, WorkDir: c.record.Runtime.CriuWork,
				},
				IO: c.init.io(socket), Detach: true, PidFile: pidFile, NoSubreaper: true,
				NoPivot: c.record.Runtime.NoPivotRoot, ConsoleSocket: socket,
			})
			return err
		})
		log := filepath.Join(c.record.Runtime.CriuWork, "restore.log")
		return criu.Error(log, oci.Error(c.runc.Log, "restore", err))
	})
}

// start lets the first process of a created container go on to its program.
func (k *keeper) start(ctx context.Context, c *container) error {
	pid, pidfd, err := c.startable()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(pidfd) }()
	if c.record.Runtime.Binary != k.builtin {
		return oci.Error(c.runc.Log, "start", c.runc.Start(ctx, c.record.ID))
	}
	if err := builtin.Start(ctx, c.stateDir(), pid, pidfd); err != nil {
		return fmt.Errorf("OCI runtime start failed: %w", err)
	}
	return nil
}

// deleteState removes the state and the cgroup that the OCI runtime keeps of a container. created says that the
// container has not started: then its process waits, and the runtime ends it. systemd's cgroups are the runtime's too.
func (k *keeper) deleteState(ctx context.Context, c *container, created bool) error {
	name := c.spec().Cgroup()
	if c.record.Runtime.Binary == k.builtin && !created && !c.record.Runtime.SystemdCgroup && c.spec().Plain() &&
		cgroup.Own(c.record.ID, name) {
		return builtin.Delete(c.record.ID, c.stateDir(), name)
	}
	err := c.runc.Delete(ctx, c.record.ID, &runc.DeleteOpts{Force: created})
	if err != nil && !oci.IsGone(err) {
		return oci.Error(c.runc.Log, "delete", err)
	}
	return nil
}

// delete removes the remains of a container: runc's state, cgroups, mounts.
func (k *keeper) delete(ctx context.Context, c *container) error {
	init := c.stateOf(c.init)
	created := init.Phase == record.Created
	if err := k.deleteState(ctx, c, created); err != nil {
		return err
	}
	if created && init.Pid != 0 {
		if err := c.init.wait(ctx); err != nil {
			return err
		}
	}
	if err := rootfs.Remove(c.root()); err != nil {
		return fmt.Errorf("unmount root file system: %w", err)
	}
	if !created && !init.NeverRan {
		if err := c.keepExit(k.exits); err != nil {
			return fmt.Errorf("keep exit: %w", err)
		}
	}
	for _, p := range c.all() {
		_ = p.stdio.Close() // of a command whose caller has gone
	}
	return c.removeRecord()
}
