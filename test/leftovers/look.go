package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"

	"github.com/berth-run/berth/internal/base/netdump"
	"github.com/berth-run/berth/internal/base/process"
)

// look finds everything that a test could leave.
func look() (findings, error) {
	f := findings{}
	var errs []error
	for kind, find := range map[string]func() ([]string, error){
		"rule": findRules, "network device": findLinks, "mount": findMounts, "cgroup": findCgroups,
		"process": findProcesses, "file": findFiles,
	} {
		things, err := find()
		if err != nil {
			errs = append(errs, fmt.Errorf("find each %s: %w", kind, err))
		}
		f[kind] = things
	}
	return f, errors.Join(errs...)
}

func findRules() ([]string, error) {
	out, err := exec.CommandContext(context.Background(), "nft", "list", "ruleset").Output()
	return rules(string(out)), err
}

func findLinks() (names []string, err error) {
	links, err := netdump.Complete(netlink.LinkList)
	for _, l := range links {
		// The kernel makes ifb0 and ifb1 when it loads the module for limits of bandwidth.
		if name := l.Attrs().Name; l.Type() != "ifb" || name != "ifb0" && name != "ifb1" {
			names = append(names, name)
		}
	}
	return names, err
}

func findMounts() (points []string, err error) {
	mounts, err := mountinfo.GetMounts(nil)
	for _, m := range mounts {
		points = append(points, m.Mountpoint)
	}
	return points, err
}

func findCgroups() (paths []string, err error) {
	const root = "/sys/fs/cgroup"
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed meanwhile
		}
		if err == nil && d.IsDir() && ourCgroup.MatchString(strings.TrimPrefix(path, root)) {
			paths = append(paths, path)
		}
		return err
	})
	return paths, err
}

// findProcesses lists the processes of our programs, except this one and those that have started it.
func findProcesses() (all []string, err error) {
	own := ancestors()
	files, err := filepath.Glob("/proc/[0-9]*/exe")
	for _, file := range files {
		dir := filepath.Dir(file)
		program, err := os.Readlink(file)
		program = filepath.Base(strings.TrimSuffix(program, " (deleted)"))
		if err != nil || !ourPrograms.MatchString(program) || slices.Contains(own, filepath.Base(dir)) {
			continue
		}
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(line) == 0 {
			continue // it has ended
		}
		all = append(all, filepath.Base(dir)+" "+strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")))
	}
	return all, err
}

// ancestors returns the IDs of this process and of those above it.
func ancestors() (ids []string) {
	for pid := os.Getpid(); pid > 1; {
		ids = append(ids, strconv.Itoa(pid))
		parent, err := process.Parent(pid)
		if err != nil {
			return ids
		}
		pid = parent
	}
	return ids
}

// findFiles lists the entries of directories with the state of agents, runtimes and CNI plugins. Directories that all
// of them share do not count. Debian's containerd has the sockets of its shims in /run/containerd/s, and forgets the
// sockets of shims that a test has killed. If a test has killed a container's runtime and shim as a power cut would,
// runc's state of it stays in /run/containerd/runc. The lock file of the choice of pod ranges stays, because removing a
// lock file would undo the lock of another process. For the same reason the state of blkid, mount and iptables stays,
// and dockerd's directory for the sockets of plugins: each makes its own on the first run after a start of the machine.
func findFiles() (all []string, err error) {
	for _, pattern := range []string{
		"/run/*", "/run/berth/*", "/run/netns/*", "/run/containerd/*",
		"/run/cdi/*",
		"/var/lib/cni/results/*", "/var/lib/cni/networks/*", "/var/lib/berth", "/var/lib/kubelet",
	} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		all = append(all, paths...)
	}
	return slices.DeleteFunc(all, func(path string) bool {
		return slices.Contains([]string{
			"/run/berth", "/run/berth-network.lock", "/run/netns", "/run/containerd", "/run/containerd/runc",
			"/run/containerd/s", "/run/cdi", "/run/blkid", "/run/docker", "/run/mount", "/run/xtables.lock",
		}, path)
	}), nil
}
