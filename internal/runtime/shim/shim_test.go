package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/eventually"
	"github.com/berth-run/berth/internal/runtime/shim/builtin"
	"github.com/berth-run/berth/internal/runtime/shim/child"
	"github.com/berth-run/berth/internal/runtime/shim/record"
)

// A container that is being created or discarded is neither found nor created until that is over. Others are.
func TestRegistryWaitsForOneContainer(t *testing.T) {
	r := newRegistry(func() {})
	if err := r.reserve("discarded"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.find("other"); err == nil {
		t.Error("found a container that does not exist")
	}
	reserved, found := make(chan error), make(chan error)
	go func() { reserved <- r.reserve("discarded") }()
	select {
	case err := <-reserved:
		t.Fatalf("reserved a container that is being discarded: %v", err)
	default:
	}
	r.set("discarded", nil)
	if err := <-reserved; err != nil {
		t.Error(err)
	}
	go func() {
		_, err := r.find("discarded")
		found <- err
	}()
	r.set("discarded", &container{})
	if err := <-found; err != nil {
		t.Error(err)
	}
	if err := r.reserve("discarded"); !errdefs.IsAlreadyExists(err) {
		t.Errorf("reserved a container that exists: %v", err)
	}
}

func TestRegistryEndsOnlyWhenEmpty(t *testing.T) {
	ends := 0
	r := newRegistry(func() { ends++ })
	r.idle.Stop()
	if err := r.reserve("c"); err != nil {
		t.Fatal(err)
	}
	r.endIfEmpty()
	r.set("c", &container{})
	r.endIfEmpty()
	if ends != 0 {
		t.Error("the shim ends although it has a container")
	}
	r.set("c", nil)
	r.idle.Stop()
	ends = 0
	if r.endIfEmpty(); ends != 1 {
		t.Errorf("the shim without containers ended %d times", ends)
	}
	if err := r.reserve("late"); !errors.Is(err, errEnding) {
		t.Errorf("reserved a container in a shim that ends: %v", err)
	}
}

// A shim outlives a pod that is replaced, so the next pod does not wait for another shim. It ends if nothing comes.
func TestRegistryWaitsForAnotherContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		r := newRegistry(func() { close(ended) })
		if err := r.reserve("c"); err != nil {
			t.Fatal(err)
		}
		r.set("c", &container{})
		time.Sleep(time.Hour) // on the clock of synctest, which does not wait
		removed := time.Now()
		r.set("c", nil)
		<-ended
		if waited := time.Since(removed); waited != idleTime {
			t.Errorf("the shim ended %s after its last container, not %s", waited, idleTime)
		}
	})
}

func TestRemovedRecordIsNotWrittenAgain(t *testing.T) {
	bundle := t.TempDir()
	c := newContainer(record.Container{ID: "c", Bundle: bundle})
	c.mu.Lock()
	err := c.save()
	c.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.removeRecord(); err != nil {
			t.Errorf("remove a record, or one that is gone: %v", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.save(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(record.File(bundle)); err == nil {
		t.Error("a late change has written the record again")
	}
}

// A start that is repeated with the next shim succeeds if the process has started, also if it has ended since.
func TestStartOfEndedProcess(t *testing.T) {
	for name, one := range map[string]struct {
		state   record.Process
		started bool
	}{
		"runs":              {record.Process{Phase: record.Running, Pid: 7}, true},
		"ended":             {record.Process{Phase: record.Exited, Pid: 7}, true},
		"ended as it was":   {record.Process{Phase: record.Exited, Pid: 7, NeverRan: true}, false},
		"could not execute": {record.Process{Phase: record.Exited}, false},
	} {
		c := newContainer(record.Container{ID: "c", Init: one.state})
		c.execs["e"] = newProcess("e", one.state)
		s := &service{registry: newRegistry(func() {})}
		s.registry.idle.Stop()
		s.registry.set("c", c)
		for _, exec := range []string{"", "e"} {
			r, err := s.Start(t.Context(), &taskapi.StartRequest{ID: "c", ExecID: exec})
			switch {
			case one.started && (err != nil || r.Pid != 7):
				t.Errorf("%s: start of process %q: %v, %v", name, exec, r, err)
			case !one.started && !errdefs.IsFailedPrecondition(errgrpc.ToNative(err)):
				t.Errorf("%s: start of process %q: %v, want a failed precondition", name, exec, err)
			}
		}
	}
}

// A start was cut short if the process has ended beside its FIFO, or if a shim that created it again has ended.
func TestStartFailed(t *testing.T) {
	self, err := child.ReadStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	alive := record.Process{Phase: record.Created, Pid: os.Getpid(), Started: self.Started}
	ended := record.Process{Phase: record.Created, Pid: os.Getpid(), Started: self.Started + 1}
	for name, tt := range map[string]struct {
		init        record.Process
		waits, want bool
	}{
		"waits for its start":        {alive, true, false},
		"has ended before its start": {ended, true, true},
		"has ended after its start":  {ended, false, false},
		"is created again":           {record.Process{Phase: record.Created, Repeated: true}, false, true},
		"is a checkpoint":            {record.Process{Phase: record.Created}, false, false},
		"runs":                       {record.Process{Phase: record.Running, Pid: 1, Repeated: true}, false, false},
	} {
		c := newContainer(record.Container{ID: "c", Runtime: record.Runtime{Root: t.TempDir()}, Init: tt.init})
		if tt.waits {
			makeFIFO(t, c)
		}
		if got := c.startFailed(); got != tt.want {
			t.Errorf("the start of a process that %s has failed: %t, want %t", name, got, tt.want)
		}
	}
}

// makeFIFO makes what a first process waits beside for its start.
func makeFIFO(t *testing.T, c *container) {
	t.Helper()
	if err := os.MkdirAll(c.stateDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(builtin.FIFO(c.stateDir()), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A process that the kernel has stopped before it could write to its FIFO fails when it goes on.
func TestStartFailedOfStoppedProcess(t *testing.T) {
	command := exec.Command("sleep", "60")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	pid := command.Process.Pid
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var stat child.Stat
	eventually.True(t, "the process is stopped", func() (stopped bool) {
		var err error
		stat, err = child.ReadStat(pid)
		return err == nil && stat.State == "T"
	})
	c := newContainer(record.Container{ID: "c", Runtime: record.Runtime{Root: t.TempDir()},
		Init: record.Process{Phase: record.Created, Pid: pid, Started: stat.Started}})
	makeFIFO(t, c)
	time.AfterFunc(50*time.Millisecond, func() { _ = command.Process.Kill() })
	if !c.startFailed() {
		t.Error("the start of a process that was stopped, and then failed, has not failed")
	}
}

// runc was killed before it had renamed its PID file. It can create the container again.
func TestDiscardRemovesUnfinishedPIDFile(t *testing.T) {
	bundle := t.TempDir()
	unfinished := filepath.Join(bundle, ".init.pid")
	if err := os.WriteFile(unfinished, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	newContainer(record.Container{ID: "c", Bundle: bundle, Runtime: record.Runtime{Binary: "true"}}).discard()
	if _, err := os.Stat(unfinished); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of a killed runc is still there: %v", err)
	}
}

// runc was killed before it had renamed the PID file of a command, as when a probe takes too long. The container runs
// on, and nothing of the command stays in its directory.
func TestFailedExecLeavesNoFile(t *testing.T) {
	bundle, binary := t.TempDir(), filepath.Join(t.TempDir(), "runc")
	const script = `#!/bin/sh
while [ "$1" != --pid-file ]; do shift; done
: >"$(dirname "$2")/.$(basename "$2")"
kill -KILL $$
`
	if err := os.WriteFile(binary, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	c := newContainer(record.Container{ID: "c", Bundle: bundle, Runtime: record.Runtime{Binary: binary}})
	p := newProcess("e", record.Process{})
	p.spec = &specs.Process{}
	k := &keeper{reaper: child.NewReaper("")}
	if err := k.startExec(t.Context(), c, p); err == nil {
		t.Error("the exec of a killed runc succeeds")
	}
	left, err := filepath.Glob(filepath.Join(bundle, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// An upgrade waits for containers that are being created, but not for ever, and no other begins.
func TestRegistryCloses(t *testing.T) {
	r := newRegistry(func() {})
	for _, id := range []string{"soon", "never"} {
		if err := r.reserve(id); err != nil {
			t.Fatal(err)
		}
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		r.close(time.Minute)
	}()
	for err := error(nil); !errors.Is(err, errEnding); { // until it is closing
		if err = r.reserve("other"); err == nil {
			r.set("other", nil)
		}
	}
	select {
	case <-closed:
		t.Error("closed before the containers are there")
	default:
	}
	r.set("soon", &container{})
	const moment = 10 * time.Millisecond
	r.close(moment) // returns although one is never there
	r.set("never", nil)
	<-closed
}
