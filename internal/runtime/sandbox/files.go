package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/safepath"
)

// files makes the files of sandboxes that the CRI plugin mounts into containers: host name, hosts, resolv.conf and
// /dev/shm. The plugin finds them below two directories of its own. At each start it removes the directories there that
// belong to no pause container. So the files are elsewhere, and the plugin's directories have links, which it leaves
// alone.
type files struct {
	root, state       string // what survives a reboot, and what does not
	criRoot, criState string // where the plugin looks for both
}

// make makes the files of a sandbox.
func (f files) make(id string, config *runtimeapi.PodSandboxConfig) error {
	for _, dir := range []struct{ path, link string }{
		{filepath.Join(f.root, id), filepath.Join(f.criRoot, id)},
		{filepath.Join(f.state, id), filepath.Join(f.criState, id)},
	} {
		if err := os.MkdirAll(filepath.Dir(dir.link), 0o755); err != nil {
			return err
		}
		if err := os.MkdirAll(dir.path, 0o755); err != nil {
			return err
		}
		if err := os.Symlink(dir.path, dir.link); err != nil {
			return err
		}
	}
	for _, write := range []func(string, *runtimeapi.PodSandboxConfig) error{
		writeHostname, writeHosts, writeResolvConf,
	} {
		if err := write(filepath.Join(f.root, id), config); err != nil {
			return err
		}
	}
	return f.mountShm(id, config)
}

func writeHostname(dir string, config *runtimeapi.PodSandboxConfig) (err error) {
	name := config.GetHostname()
	if name == "" {
		if name, err = os.Hostname(); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "hostname"), []byte(name+"\n"), 0o644)
}

// writeHosts copies the host's file.
func writeHosts(dir string, _ *runtimeapi.PodSandboxConfig) error {
	return copyFile("/etc/hosts", filepath.Join(dir, "hosts"))
}

// writeResolvConf writes the DNS configuration of the pod. Without one the pod has the host's.
func writeResolvConf(dir string, config *runtimeapi.PodSandboxConfig) error {
	path := filepath.Join(dir, "resolv.conf")
	if config.GetDnsConfig() == nil {
		return copyFile("/etc/resolv.conf", path)
	}
	return os.WriteFile(path, []byte(resolvConf(config.GetDnsConfig())), 0o644)
}

// copyFile copies a file of the host. The copy is empty if the host has no such file, as a small Debian has no
// /etc/hosts.
func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}

// mountShm mounts /dev/shm of a pod that has an IPC namespace of its own.
func (f files) mountShm(id string, config *runtimeapi.PodSandboxConfig) error {
	if !namespacesOf(config).IPC {
		return nil
	}
	dir := f.shm(id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	err := unix.Mount("shm", dir, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV,
		fmt.Sprintf("mode=1777,size=%d", shmSize))
	if err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	return nil
}

func (f files) shm(id string) string { return filepath.Join(f.state, id, "shm") }

// unmount unmounts /dev/shm of a sandbox. It does nothing if that is not mounted.
func (f files) unmount(id string) error {
	err := unix.Unmount(f.shm(id), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", f.shm(id), err)
	}
	return nil
}

// remove removes the files of a sandbox.
func (f files) remove(id string) error {
	if err := safepath.Name(id); err != nil {
		return err
	}
	if err := f.unmount(id); err != nil {
		return err
	}
	return errors.Join(
		safepath.IgnoreMissing(os.Remove(filepath.Join(f.criRoot, id))),
		safepath.IgnoreMissing(os.Remove(filepath.Join(f.criState, id))),
		os.RemoveAll(filepath.Join(f.root, id)),
		os.RemoveAll(filepath.Join(f.state, id)),
	)
}
