package side

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/bench/proc"
)

// groups is the cgroup of all sides. It does not exist before and after the measurement.
const groups = "/berth-bench"

// workload is the name of the program of the containers.
const workload = "workload"

// Group is the cgroup of a side. Its child "self" has the side's own process, and with it all programs that the process
// starts. The other children are the cgroups of pods.
type Group struct{ side string }

func (g Group) name() string { return groups + "/" + g.side }

// dir is the group's directory in the hierarchy that counts CPU time.
func (g Group) dir() string {
	if v2() {
		return "/sys/fs/cgroup" + g.name()
	}
	return "/sys/fs/cgroup/cpuacct" + g.name()
}

func v2() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

func (g Group) make() error { return os.MkdirAll(filepath.Join(g.dir(), "self"), 0o755) }

// join moves a process to the group.
func (g Group) join(pid int) error {
	return os.WriteFile(filepath.Join(g.dir(), "self", "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// joinThread moves the calling thread to the group, so that its next child process begins there.
func (g Group) joinThread() error {
	file := "tasks"
	if v2() {
		file = "cgroup.threads"
	}
	return os.WriteFile(filepath.Join(g.dir(), "self", file), []byte(strconv.Itoa(unix.Gettid())), 0)
}

// CPU is the CPU time of everything that has ever run in the group: agent, runtime, shims, runc, and the containers.
func (g Group) CPU() (time.Duration, error) { return usage(g.dir()) }

// CPUs returns the CPU time of the group without the containers, and the CPU time of the containers: the cgroups that
// have a process of the workload.
func (g Group) CPUs() (own, containers time.Duration, err error) {
	all, err := g.CPU()
	if err != nil {
		return 0, 0, err
	}
	err = g.processes(func(dir, exe string, _ int) error {
		if filepath.Base(exe) != workload {
			return nil
		}
		one, err := usage(dir)
		containers += one
		return err
	})
	return all - containers, containers, err
}

// usage is the CPU time of a cgroup with those below it.
func usage(dir string) (time.Duration, error) {
	if !v2() {
		text, err := os.ReadFile(filepath.Join(dir, "cpuacct.usage"))
		if err != nil {
			return 0, err
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return time.Duration(ns), err
	}
	text, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return time.Duration(us) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("read the CPU time of %s: no usage_usec in %q", dir, text)
}

// PSS returns the memory of all processes in the group without the workload's, in MB. A page that several processes
// share counts in parts.
func (g Group) PSS() (mb float64, err error) {
	err = g.processes(func(_, exe string, pid int) error {
		if filepath.Base(exe) == workload {
			return nil
		}
		part, err := proc.PSS(pid)
		mb += part
		return err
	})
	return mb, err
}

// processes calls do for each process in the group, with its cgroup's directory and the path of its program.
func (g Group) processes(do func(dir, exe string, pid int) error) error {
	return filepath.WalkDir(g.dir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != "cgroup.procs" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for field := range strings.FieldsSeq(string(text)) {
			exe, err := os.Readlink("/proc/" + field + "/exe")
			if errors.Is(err, fs.ErrNotExist) {
				continue // the process has ended
			}
			pid, err := strconv.Atoi(field)
			if err != nil {
				return err
			}
			if err := do(filepath.Dir(path), exe, pid); err != nil {
				return err
			}
		}
		return nil
	})
}

// removeGroup removes a cgroup of a side with everything below it, in all hierarchies. It keeps cgroups that still have
// processes. The name "." stands for all sides.
func removeGroup(name string) (err error) {
	for _, root := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup"} { // version 1 or hybrid, version 2
		dirs, globErr := filepath.Glob(filepath.Join(root, groups, name))
		err = errors.Join(err, globErr)
		for _, dir := range dirs {
			err = errors.Join(err, removeTree(dir))
		}
	}
	return err
}

// removeTree removes a cgroup and its children. The kernel's files in it go with it.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, removeTree(filepath.Join(dir, e.Name())))
		}
	}
	if removeErr := os.Remove(dir); !errors.Is(removeErr, fs.ErrNotExist) {
		err = errors.Join(err, removeErr)
	}
	return err
}
