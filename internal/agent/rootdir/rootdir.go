package rootdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/config"
)

// Remove removes a root directory. In the kubelet's directory (config.JoinedRootDir) it removes only the entries of
// pods and those that agents make. It keeps the rest: the node's certificates, and the files of other programs such as
// kubeadm. The caller must have ended all pods, and must hold no lock in the directory.
func Remove(root string) error {
	if filepath.Clean(root) != config.JoinedRootDir {
		return os.RemoveAll(root)
	}
	return empty(root)
}

// empty removes the entries that made lists.
func empty(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("list root directory: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if slices.Contains(made(), e.Name()) {
			errs = append(errs, os.RemoveAll(filepath.Join(root, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// made returns the names of the entries that agents make, or that a kubelet makes for pods.
func made() []string {
	return []string{
		"allocations", "applied", "checkpoints", "claims.json", "device-plugins", "devices", "dra", "events",
		"identities.json",
		"image_manager", "images.json", "lock", "offline", "offline.key", "plugins", "plugins_registry",
		"pod-resources",
		"pods", "probes", "resources", "run", "runtime", "status", "timelines", "volumes",
		// A kubelet's records of the same pods. The next kubelet would trust them.
		"actuated_pods_state", "allocated_pods_state", "cpu_manager_state", "dra_manager_state", "memory_manager_state",
	}
}

// Unmount unmounts everything that is mounted on or below a directory, the innermost mount first.
func Unmount(dir string) error {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.Mountpoint != dir && !strings.HasPrefix(m.Mountpoint, filepath.Clean(dir)+"/"), false
	})
	for _, m := range slices.Backward(mounts) {
		if e := unix.Unmount(m.Mountpoint, unix.MNT_DETACH); e != nil && !errors.Is(e, unix.EINVAL) {
			err = errors.Join(err, fmt.Errorf("unmount %s: %w", m.Mountpoint, e))
		}
	}
	return err
}
