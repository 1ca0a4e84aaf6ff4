package cgroupfile

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/roottest"
)

func TestKillEndsTheProcessesOfACgroupAndOfThoseBelow(t *testing.T) {
	roottest.Need(t, "making a cgroup")
	g := Group{Dirs: map[string]string{"memory": "/sys/fs/cgroup/memory"}}
	if unix.Access("/sys/fs/cgroup/cgroup.controllers", unix.F_OK) == nil {
		g = Group{Unified: true, Dirs: map[string]string{"": "/sys/fs/cgroup"}}
	}
	top, _ := g.Dir("memory")
	top = filepath.Join(top, "berth-test-kill-"+strconv.Itoa(os.Getpid()))
	below := filepath.Join(top, "below")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	for c := range g.Dirs {
		g.Dirs[c] = top
	}
	t.Cleanup(func() {
		if err := errors.Join(os.Remove(below), os.Remove(top)); err != nil {
			t.Error(err)
		}
	})
	in := func(dir string) *exec.Cmd {
		cmd := exec.CommandContext(context.Background(), "sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		procs := filepath.Join(dir, "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(errors.Join(err, cmd.Process.Kill(), cmd.Wait()))
		}
		return cmd
	}
	all := []*exec.Cmd{in(top), in(below)}
	if err := Kill(g); err != nil {
		t.Error(err)
	}
	for _, cmd := range all {
		status, ok := errors.AsType[*exec.ExitError](cmd.Wait())
		if !ok || status.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("a process ended with %v", status)
		}
	}
	if err := Kill(g); err != nil {
		t.Errorf("an empty cgroup: %v", err)
	}
	gone := Group{Unified: g.Unified, Dirs: map[string]string{}}
	for c := range g.Dirs {
		gone.Dirs[c] = filepath.Join(top, "gone")
	}
	if err := Kill(gone); err != nil {
		t.Errorf("a cgroup that is gone: %v", err)
	}
}
