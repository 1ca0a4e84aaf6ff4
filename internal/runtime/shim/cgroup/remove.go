package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/poll"
)

// mountPoint is where the kernel's hierarchies of cgroups are mounted.
const mountPoint = "/sys/fs/cgroup"

// Remove ends the processes in the cgroup that an OCI runtime has made for a container, and removes it. name is the
// specification's name of the cgroup. Remove does nothing if the cgroup is not the container's own.
func Remove(container, name string) error {
	path := pathOf(name)
	if !Own(container, name) {
		return nil
	}
	roots := []string{mountPoint}
	if cgroups.Mode() != cgroups.Unified {
		entries, err := os.ReadDir(mountPoint)
		if err != nil {
			return err
		}
		roots = nil
		for _, entry := range entries {
			if entry.IsDir() { // else it is a link to a hierarchy with several controllers
				roots = append(roots, filepath.Join(mountPoint, entry.Name()))
			}
		}
	}
	var errs []error
	for _, root := range roots {
		errs = append(errs, remove(filepath.Join(root, path)))
	}
	return errors.Join(errs...)
}

// Own reports whether the name of a cgroup in a specification names the container's own cgroup.
func Own(container, name string) bool {
	return container != "" && strings.Contains(filepath.Base(pathOf(name)), container)
}

// pathOf returns the path of a cgroup in each hierarchy by its name in a specification. A name for systemd is
// SLICE:PREFIX:NAME, and the slice a-b.slice is in the slice a.slice (systemd.slice(5)).
func pathOf(name string) string {
	parts := strings.Split(name, ":")
	if len(parts) != 3 {
		return filepath.Join("/", name)
	}
	slice, path, above := strings.TrimSuffix(parts[0], ".slice"), "/", ""
	for part := range strings.SplitSeq(slice, "-") {
		if part == "" {
			continue // the root slice is "-.slice"
		}
		above += part
		path = filepath.Join(path, above+".slice")
		above += "-"
	}
	return filepath.Join(path, parts[1]+"-"+parts[2]+".scope")
}

// remove ends the processes of a cgroup and of those in it, and removes them. The kernel refuses to remove a cgroup
// until its last process has been reaped.
func remove(dir string) error {
	var err error
	poll.Pace{First: time.Millisecond, Limit: 10 * time.Second}.Until(func() (done bool) {
		if err = unix.Rmdir(dir); !errors.Is(err, unix.EBUSY) {
			return true
		}
		if inner := empty(dir); inner != nil {
			err = inner
			return true
		}
		return false
	})
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("remove cgroup %s: %w", dir, err)
}

// empty removes the cgroups in a cgroup, and kills its own processes. It returns the first error of a removal.
func empty(dir string) error {
	inner, _ := os.ReadDir(dir) // without it: the cgroup is gone, or its removal fails too
	for _, entry := range inner {
		if entry.IsDir() {
			if err := remove(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")) // the same
	for text := range strings.FieldsSeq(string(procs)) {
		if pid, err := strconv.Atoi(text); err == nil && pid > 0 {
			killProcess(pid)
		}
	}
	return nil
}
