package rootdir

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/berth-run/berth/internal/base/mount"
)

// mountPoint reports whether a path without links is a mount point.
func mountPoint(path string) (bool, error) {
	found, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != path, false })
	if err != nil {
		return false, fmt.Errorf("read the mount table: %w", err)
	}
	return len(found) > 0, nil
}

// mounts lists the mounts below the directory at entries that are removed, the outermost first.
func (d *Dir) mounts() ([]*mountinfo.Info, error) {
	found, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		rel, below := strings.CutPrefix(m.Mountpoint, strings.TrimSuffix(d.Path, "/")+"/")
		entry, _, _ := strings.Cut(rel, "/")
		return !below || d.keeps(entry), false
	})
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	return found, nil
}

// Unmount unmounts what agents, runtimes and CSI drivers have mounted below the directory, the innermost mount first.
// Mounts elsewhere belong to the administrator: they stay, and Remove names them. The error names each mount that could
// not be unmounted.
func (d *Dir) Unmount() error {
	last := -1
	for {
		all, err := d.mounts()
		if err != nil {
			return err
		}
		ours := slices.DeleteFunc(all, func(m *mountinfo.Info) bool { return !ours(d.Path, m.Mountpoint) })
		err = mount.Detach(ours)
		// A mount that failed may have been below another one, which is gone now. So the table is read again.
		if err == nil || len(ours) == last {
			return err
		}
		last = len(ours)
	}
}

// ours reports whether agents, runtimes or CSI drivers make mounts at this path below an agent's directory.
func ours(dir, mountpoint string) bool {
	rel, err := filepath.Rel(dir, mountpoint)
	entry, inside, deeper := strings.Cut(rel, "/")
	return err == nil && deeper && inside != "" && slices.Contains([]string{"plugins", "pods", "run", "runtime"}, entry)
}

// The answers of holds.
const (
	noMount = iota
	mountBelow
	mountHere
)

// holds returns how a path is related to mount points.
func holds(path string, mountpoints []string) int {
	found := noMount
	for _, m := range mountpoints {
		switch {
		case m == path:
			return mountHere
		case strings.HasPrefix(m, path+"/"):
			found = mountBelow
		}
	}
	return found
}

func paths(mounts []*mountinfo.Info) []string {
	all := make([]string, len(mounts))
	for i, m := range mounts {
		all[i] = m.Mountpoint
	}
	return all
}
