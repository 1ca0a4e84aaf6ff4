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

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/config"
)

// reboot leaves what the machine's reboot would: what is on disk. An external
// runtime is started again, as its unit would be; the agent is not.
func (h *harness) reboot(ts *testscript.TestScript, _ []string) {
	d := ts.Value(daemonKey{}).(*daemon)
	_ = d.end(unix.SIGKILL) // by a signal, as asked
	if d.runtime != nil {
		ts.Check(d.runtime.Stop(unix.SIGKILL))
	}
	ts.Check(destroy(d.traces(rootOf(ts))))
	if d.runtime != nil {
		ts.Check(d.runtime.Start(context.Background()))
	}
}

// traces are what the pods of a script have on the machine besides files on disk.
type traces struct {
	dirs   []string // where processes are started from and what is mounted lies
	memory []string // directories that do not outlive the machine
	bridge string
	cgroup string
}

func (d *daemon) traces(root string) traces {
	t := traces{
		dirs: []string{root}, memory: []string{filepath.Join(root, "run")},
		cgroup: "/berth-test-" + strconv.Itoa(d.place),
		bridge: engine.RuntimeConfig(&config.Config{Flags: config.Flags{RootDir: root}},
			slog.New(slog.DiscardHandler)).Bridge,
	}
	if d.runtime != nil {
		t.dirs, t.memory = append(t.dirs, d.runtime.Dir()), append(t.memory, d.runtime.State())
		t.bridge = d.runtime.Bridge()
	}
	return t
}

// destroy removes them all at once.
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
			return fmt.Errorf("they do not end: %q", killed)
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

// kill kills the processes that have all these paths, or something below them, in
// their command line, and says which there were.
func kill(paths ...string) []string {
	return killAll(func(_, line string) bool {
		return !slices.ContainsFunc(paths, func(path string) bool { return !strings.Contains(line, path) })
	})
}

// killIn does so with those in a cgroup, whatever the hierarchy.
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
			continue // one that has ended has no command line
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

// removeLevels removes a cgroup and those in it. Nothing runs there any more, but
// the kernel may be about to notice.
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
