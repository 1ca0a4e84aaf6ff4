package tempmount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	containerd "github.com/containerd/containerd/v2/core/mount"
	"github.com/moby/sys/mountinfo"

	"github.com/berth-run/berth/internal/base/mount"
)

// volumePrefix begins the names of the directories that containerd makes for the content of volumes. It has no setting
// for their place: they are always in the directory for temporary files.
const volumePrefix = "ctd-volume"

// Use makes dir the place of containerd's temporary mounts in this process. root is the directory of the runtime's
// layers, dir a directory below it that contains nothing else. Use first unmounts what an earlier process has left in
// dir, and mounts of root's layers in the directory for temporary files. Call it before containerd starts, and while no
// other runtime uses root. After an error the remains stay for the next call.
func Use(root, dir string) error {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return err
	}
	if err := containerd.SetTempMountLocation(dir); err != nil {
		return err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	temporary, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return err
	}
	left, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		volume := filepath.Dir(m.Mountpoint) == temporary &&
			strings.HasPrefix(filepath.Base(m.Mountpoint), volumePrefix)
		ours := strings.HasPrefix(m.Mountpoint, dir+"/") || volume && of(m, root)
		return !ours, false
	})
	if err != nil {
		return fmt.Errorf("read the mount table: %w", err)
	}
	return remove(dir, left)
}

// of reports whether m shows a layer below root.
func of(m *mountinfo.Info, root string) bool {
	return strings.HasPrefix(m.Root, root+"/") || // a bind mount of a layer, on the file system of /
		strings.Contains(m.VFSOptions, "="+root+"/") || strings.Contains(m.VFSOptions, ":"+root+"/")
}

// remove unmounts left, later mounts first, and removes their directories and all of dir's content. It removes nothing
// below a path that is still mounted.
func remove(dir string, left []*mountinfo.Info) (err error) {
	if err := mount.Detach(left); err != nil {
		return err
	}
	for _, m := range left {
		if e := os.Remove(m.Mountpoint); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	entries, e := os.ReadDir(dir)
	err = errors.Join(err, e)
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	return err
}
