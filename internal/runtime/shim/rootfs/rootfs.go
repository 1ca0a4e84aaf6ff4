package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"
)

// Mount mounts a container's root file system at a directory.
//
// An overlay is volatile, unless the kernel is older than 5.10: then neither fsync(2) in the container's own layer nor
// the end of the container waits until the disk has written what the layer, or another file of that disk, has changed.
// No one needs the layer after a loss of power, because a container does not start again after a boot.
func Mount(parts []*types.Mount, dir string) error {
	mounts, volatile := make([]mount.Mount, len(parts)), make([]mount.Mount, len(parts))
	for i, m := range parts {
		mounts[i] = mount.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options}
		volatile[i] = mounts[i]
		if m.Type != "overlay" {
			continue
		}
		volatile[i].Options = append(slices.Clone(m.Options), "volatile")
		if err := forgetMount(m.Options); err != nil {
			return err
		}
	}
	err := mount.All(volatile, dir)
	if errors.Is(err, unix.EINVAL) { // an older kernel does not know the option
		err = mount.All(mounts, dir)
	}
	if err != nil {
		return fmt.Errorf("mount root file system: %w", err)
	}
	return nil
}

// Remove unmounts a root file system and removes its directory. The machine's table of mounts is long if it has many
// containers: it is read only if there are other mounts too.
func Remove(dir string) error {
	_ = unix.Unmount(dir, unix.UMOUNT_NOFOLLOW) // else it cannot be removed
	if err := unix.Rmdir(dir); err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return mount.UnmountRecursive(dir, 0)
}

// forgetMount removes the kernel's mark of an earlier volatile mount with the same options. The kernel does not mount
// the layer again while the mark is there (Documentation/filesystems/overlayfs.rst). A shim that was killed while it
// created the container has left it.
func forgetMount(options []string) error {
	for _, option := range options {
		if work, ok := strings.CutPrefix(option, "workdir="); ok {
			if err := os.RemoveAll(filepath.Join(work, "work", "incompat", "volatile")); err != nil {
				return fmt.Errorf("forget an earlier mount of the root file system: %w", err)
			}
		}
	}
	return nil
}
