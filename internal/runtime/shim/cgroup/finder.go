package cgroup

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/moby/sys/mountinfo"
)

// Finder finds and opens the cgroups of containers. The zero value is ready.
//
// On version 1 it reads the machine's table of mounts once. The library that knows the controllers reads it a dozen
// times for each container, which was a fifth of the shim's CPU time in a burst.
type Finder struct {
	once sync.Once
	// roots has the controllers that are mounted, each with the cgroup at its mount point: / unless this process runs
	// in a container.
	roots      map[string]string
	subsystems []cgroup1.Subsystem
	err        error
}

// read looks at the mounted hierarchies of version 1.
func (f *Finder) read() error {
	f.once.Do(func() {
		if f.subsystems, f.err = cgroup1.Default(); f.err != nil {
			return
		}
		mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup"))
		if f.err = err; err != nil {
			return
		}
		f.roots = rootsOf(mounts, cgroup1.Subsystems())
	})
	if f.err != nil {
		return fmt.Errorf("look at the hierarchies of cgroups: %w", f.err)
	}
	return nil
}

// rootsOf returns the cgroup at the first mount point of each controller that has one.
func rootsOf(mounts []*mountinfo.Info, controllers []cgroup1.Name) map[string]string {
	roots := map[string]string{}
	for _, name := range controllers {
		mounted := slices.IndexFunc(mounts, func(m *mountinfo.Info) bool {
			return slices.Contains(strings.Split(m.VFSOptions, ","), string(name))
		})
		if mounted >= 0 {
			roots[string(name)] = mounts[mounted].Root
		}
	}
	return roots
}

// below returns the path of a cgroup below the one at its mount point.
func below(root, path string) (string, error) {
	relative, err := filepath.Rel(root, path)
	if relative == "." {
		return root, err
	}
	return filepath.Join("/", relative), err
}
