package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/mount"
)

// Unmount unmounts everything at or below path, the newest mount first. It returns nil if nothing is mounted there or
// path does not exist. The error for a busy mount lists the processes that hold it.
func Unmount(path string) error {
	resolved, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find mounts below %s: %w", path, err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(resolved))
	if err != nil {
		return fmt.Errorf("read the mount table: %w", err)
	}
	for _, m := range slices.Backward(mounts) {
		err := unix.Unmount(m.Mountpoint, unix.UMOUNT_NOFOLLOW)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
			// Another process has unmounted it.
		case errors.Is(err, unix.EBUSY):
			return fmt.Errorf("unmount %s: %w%s", m.Mountpoint, err, heldBy(m))
		case err != nil:
			return fmt.Errorf("unmount %s: %w", m.Mountpoint, err)
		}
	}
	return nil
}

// HeldBy returns the end of an error about a busy mount: it lists the processes that hold the mount.
func HeldBy(mountPoint string) string {
	m, err := mount.At(mountPoint)
	if m == nil || err != nil {
		return ""
	}
	return heldBy(m)
}

func heldBy(m *mountinfo.Info) string {
	found := holders("/proc", "/sys", uint64(m.ID), m.Mountpoint)
	if len(found) == 0 {
		return ": no visible process holds it; it may be exported by NFS or used as swap"
	}
	if more := len(found) - maxHolders; more > 0 {
		found = append(found[:maxHolders], fmt.Sprintf("%d more", more))
	}
	return ": held by " + strings.Join(found, ", ")
}

// Mounted reports whether path is a mount point. A file system of another type than fsType, a number of statfs(2), is
// an error.
func Mounted(path string, fsType int64) (bool, error) {
	mounted, err := mountinfo.Mounted(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil || !mounted {
		return false, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	if int64(st.Type) != fsType { //nolint:unconvert // 32 bits wide on some machines
		return false, fmt.Errorf("a file system of another type (%#x) is mounted on %s", st.Type, path)
	}
	return true, nil
}

// bind mounts the open file or directory source on target, which exists and is of the same type. It uses the file
// descriptor, so that the kernel resolves no path a second time. Mounts below source do not appear in target, now or
// later.
func bind(source *os.File, target string, readOnly bool) error {
	tree, err := unix.OpenTree(int(source.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.ENOSYS) {
		return bindByPath(source, target)
	}
	if err != nil {
		return &os.PathError{Op: "open_tree", Path: source.Name(), Err: err}
	}
	defer func() { _ = unix.Close(tree) }()
	attr := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if readOnly {
		attr.Attr_set = unix.MOUNT_ATTR_RDONLY
	}
	// Kernels before 5.12 lack this call. They lose nothing: the runtime sets both attributes too.
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil && !errors.Is(err, unix.ENOSYS) {
		return &os.PathError{Op: "mount_setattr", Path: source.Name(), Err: err}
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "move_mount", Path: target, Err: err}
	}
	return nil
}

// bindByPath is bind where a sandbox around the agent hides open_tree(2). It uses the descriptor's link in /proc, which
// leads to the open file and nowhere else.
func bindByPath(source *os.File, target string) error {
	if err := unix.Mount("/proc/self/fd/"+strconv.Itoa(int(source.Fd())), target, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "mount", Path: target, Err: err}
	}
	if err := unix.Mount("", target, "", unix.MS_PRIVATE, ""); err != nil {
		return &os.PathError{Op: "mount", Path: target, Err: err}
	}
	return nil
}
