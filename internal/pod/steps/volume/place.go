package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/mount"
	"github.com/berth-run/berth/internal/base/safepath"
)

// Bind mounts a directory on a pod's directory of a volume, which it makes. An existing mount stays.
func Bind(source, target string) error {
	if at, err := mount.At(target); at != nil || err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		_ = os.Remove(target) // it is empty
		return fmt.Errorf("bind %s on %s: %w", source, target, err)
	}
	return nil
}

// Link makes target a symbolic link to a device.
func Link(device, target string) error {
	if to, err := os.Readlink(target); err == nil && to == device {
		return nil
	}
	if err := safepath.IgnoreMissing(os.Remove(target)); err != nil {
		return err // a device has another name after a reboot
	}
	return os.Symlink(device, target)
}

// Unplace undoes Bind or Link. It is idempotent.
func Unplace(target string) error {
	info, err := os.Lstat(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() { // of a link, Unmount would look at its device
		if err := Unmount(target); err != nil {
			return err
		}
	}
	return safepath.IgnoreMissing(os.Remove(target))
}

// BoundUses finds the volumes of pods that are bind mounts of disks of a plugin, such as iscsi. stageID returns the
// StageID of the disk that is mounted on a directory. A kubelet has mounted them in the same places.
func BoundUses(root, plugin string, stageID func(dir string) (id string, ok bool)) ([]Use, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, safepath.IgnoreMissing(err)
	}
	disks, err := mountinfo.GetMounts(mountinfo.PrefixFilter(filepath.Join(root, pluginsDir, "kubernetes.io", plugin)))
	if err != nil || len(disks) == 0 {
		return nil, err
	}
	bound, err := mountinfo.GetMounts(mountinfo.PrefixFilter(filepath.Join(root, "pods")))
	if err != nil {
		return nil, err
	}
	var all []Use
	for _, m := range bound {
		kind := filepath.Dir(m.Mountpoint)
		volumes := filepath.Dir(kind)
		if filepath.Base(kind) != "kubernetes.io~"+plugin || filepath.Base(volumes) != volumesDir {
			continue
		}
		for _, d := range disks {
			if id, ok := stageID(d.Mountpoint); ok && d.Major == m.Major && d.Minor == m.Minor {
				uid := filepath.Base(filepath.Dir(volumes))
				all = append(all, Use{StageID: id, UID: types.UID(uid), Volume: filepath.Base(m.Mountpoint)})
			}
		}
	}
	return all, nil
}
