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

// Remove removes a root directory. Of the kubelet's (config.JoinedRootDir) it
// removes what is about pods and what only agents make there, and leaves the rest:
// the node's certificates, and files that others wrote, as kubeadm's. The
// caller has ended all pods, and holds no lock in it.
func Remove(root string) error {
	if filepath.Clean(root) != config.JoinedRootDir {
		return os.RemoveAll(root)
	}
	return empty(root)
}

// empty removes the entries of a directory that are not to stay.
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

// made are the entries that agents make, or that a kubelet makes for pods.
func made() []string {
	return []string{
		"allocations", "applied", "checkpoints", "claims.json", "device-plugins", "devices", "dra", "events",
		"identities.json",
		"image_manager", "images.json", "lock", "offline", "offline.key", "plugins", "plugins_registry",
		"pod-resources",
		"pods", "probes", "resources", "run", "runtime", "status", "timelines", "volumes",
		// A kubelet's own records of the same pods, which a next one would believe.
		"actuated_pods_state", "allocated_pods_state", "cpu_manager_state", "dra_manager_state", "memory_manager_state",
	}
}

// Unmount unmounts what is mounted in a directory, the innermost first.
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
