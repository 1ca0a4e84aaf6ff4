package poddir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/model/pod"
)

// Hosts writes the pod's /etc/hosts and returns its path. podIPs has the primary address first and is ignored on the
// host network. A changed file replaces the old one, so containers that mount the old one already keep seeing that.
func (d *Dirs) Hosts(p *corev1.Pod, podIPs []string) (path string, err error) {
	dir, err := d.Dir(p.UID)
	if err != nil {
		return "", err
	}
	content, err := d.hostsContent(p, podIPs)
	if err != nil {
		return "", fmt.Errorf("write the pod's /etc/hosts: %w", err)
	}
	path = filepath.Join(dir, "etc-hosts")
	// A container that mounts the file may have made it as large as it likes.
	if now, err := safepath.ReadFile(path, 1, int64(len(content))); err == nil && string(now) == content {
		return path, nil
	}
	if err := replaceFile(path, content, 0o644); err != nil {
		return "", fmt.Errorf("write the pod's /etc/hosts: %w", err)
	}
	return path, nil
}

func (d *Dirs) hostsContent(p *corev1.Pod, podIPs []string) (string, error) {
	if pod.HostNetwork(p) {
		host, err := os.ReadFile(d.cfg.HostsFile)
		if errors.Is(err, os.ErrNotExist) { // a small Debian has none
			err = nil
		}
		return hostHosts(string(host), p.Spec.HostAliases), err
	}
	n, err := d.namesOf(p)
	return hosts(podIPs, n, p.Spec.HostAliases), err
}

// replaceFile replaces a file atomically.
func replaceFile(path, content string, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // fails, harmlessly, once it is renamed
	_, err = f.WriteString(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// TerminationLog makes the empty file for the last message of one instance of a container, and returns its path. Every
// user may write to it.
func (d *Dirs) TerminationLog(p *corev1.Pod, container string, restartCount int) (path string, err error) {
	fail := func(err error) (string, error) {
		return "", fmt.Errorf("make the termination log of container %q: %w", container, err)
	}
	dir, err := d.Dir(p.UID)
	if err != nil {
		return fail(err)
	}
	if err := safepath.Name(container); err != nil {
		return fail(err)
	}
	dir = filepath.Join(dir, "containers", container)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fail(err)
	}
	path = filepath.Join(dir, messageFile(restartCount))
	// It never writes to a file that an earlier attempt or another program has left there.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fail(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return fail(err)
	}
	err = f.Chmod(0o666) // the umask removed some bits
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fail(err)
	}
	return path, nil
}
