package test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/agent/engine/kind"
	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/test/containerd"
)

// reboot leaves what a reboot of the machine would leave: the files on disk. It starts an external runtime again, as
// its systemd unit would be, but not the agent.
func (h *harness) reboot(ts *testscript.TestScript, _ []string) {
	d := ts.Value(daemonKey{}).(*daemon)
	_ = d.end(unix.SIGKILL) // the error says that the signal ended it
	if d.runtime != nil {
		ts.Check(d.runtime.Stop(unix.SIGKILL))
	}
	if d.docker != nil {
		ts.Check(d.docker.Crash())
	}
	ts.Check(destroy(d.traces(rootOf(ts))))
	if d.runtime != nil {
		ts.Check(d.runtime.Start(context.Background()))
	}
	if d.docker != nil {
		ts.Check(d.docker.Start(context.Background()))
	}
}

// traces lists everything that the pods of a script have on the machine besides files on disk.
type traces struct {
	dirs   []string // processes have a path below one of them in their command line, and mounts lie below them
	memory []string // directories that a reboot empties
	bridge string
	cgroup string
}

func (d *daemon) traces(root string) traces {
	t := tracesOf(root, d.place, d.runtime)
	if d.docker != nil {
		t.dirs = append(t.dirs, filepath.Dir(d.docker.Socket()))
	}
	return t
}

// tracesOf lists the traces of the pods of an agent, whose external runtime may be nil.
func tracesOf(root string, place int, runtime *containerd.Daemon) traces {
	t := traces{
		dirs: []string{root}, memory: []string{filepath.Join(root, "run"),
			unixsocket.Dir(filepath.Join(root, "runtime"))},
		cgroup: "/berth-test-" + strconv.Itoa(place),
		bridge: kind.RuntimeConfig(&config.Config{RootDir: root},
			slog.New(slog.DiscardHandler)).Bridge,
	}
	if runtime != nil {
		t.dirs, t.memory = append(t.dirs, runtime.Dir()), append(t.memory, runtime.State())
		t.bridge = runtime.Bridge()
	}
	return t
}

// destroy kills the processes of traces, and removes their mounts, network device, cgroups and directories in memory.
func destroy(t traces) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		killed := killIn(t.cgroup)
		for _, dir := range t.dirs {
			killed = append(killed, kill(dir+"/")...)
		}
		if len(killed) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("end processes: still running after %v: %q", patience, killed)
		}
	}
	err := unmountAll(t.dirs)
	if link, linkErr := netlink.LinkByName(t.bridge); linkErr == nil {
		err = errors.Join(err, netlink.LinkDel(link))
	}
	levels, _ := filepath.Glob("/sys/fs/cgroup/*" + t.cgroup)
	for _, dir := range append(levels, "/sys/fs/cgroup"+t.cgroup) {
		err = errors.Join(err, removeLevels(dir))
	}
	for _, dir := range t.memory {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// kill kills the processes whose command line contains all these paths, or paths below them. It returns a description
// of each process.
func kill(paths ...string) []string {
	return killAll(func(_, line string) bool {
		return !slices.ContainsFunc(paths, func(path string) bool { return !strings.Contains(line, path) })
	})
}

// killIn kills the processes below a cgroup, in whichever hierarchy, and returns their descriptions.
func killIn(cgroup string) []string {
	return killAll(func(dir, _ string) bool {
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		return strings.Contains(string(groups), cgroup+"/")
	})
}

func killAll(which func(dir, line string) bool) (killed []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, _ := os.ReadFile(file)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || len(line) == 0 || !which(filepath.Dir(file), string(line)) {
			continue // a process that has ended has no command line
		}
		killed = append(killed, fmt.Sprintf("%d %q", pid, line))
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return killed
}

func unmountAll(dirs []string) error {
	text, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return err
	}
	for _, line := range slices.Backward(strings.Split(strings.TrimSpace(string(text)), "\n")) {
		at := strings.Fields(line)[1]
		if slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(at, dir+"/") }) {
			err = errors.Join(err, unix.Unmount(at, unix.MNT_DETACH))
		}
	}
	return err
}

// removeLevels removes a cgroup and the cgroups below it. Their processes have ended, but the kernel may report a
// cgroup as busy for a moment longer.
func removeLevels(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeLevels(filepath.Join(dir, e.Name())))
		}
	}
	for range 100 {
		if e := unix.Rmdir(dir); !errors.Is(e, unix.EBUSY) {
			return errors.Join(err, e)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.Join(err, fmt.Errorf("cgroup %s is in use", dir))
}
