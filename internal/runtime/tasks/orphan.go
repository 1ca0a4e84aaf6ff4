package tasks

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// criNamespace is containerd's namespace for the containers of the CRI plugin.
const criNamespace = "k8s.io"

// removeOrphans removes the containers that the CRI plugin does not know any more. It forgets a container whose task
// could not be deleted if the container had ended before. Nobody would delete that task, and the shim would never end.
func (m *Manager) removeOrphans(ctx context.Context) {
	const limit = 10 * time.Second
	bundles, _ := filepath.Glob(filepath.Join(m.config.bundles(), criNamespace, "*"))
	for _, bundle := range bundles {
		id := filepath.Base(bundle)
		if !m.owns(id) || m.known(id) {
			continue
		}
		limited, cancel := context.WithTimeout(namespaces.WithNamespace(ctx, criNamespace), limit)
		err := m.removeOrphan(limited, id)
		cancel()
		if err != nil {
			m.config.Log.Warn("cannot remove a container that the CRI plugin does not know, retrying at the next start",
				"container", id, "err", err)
			continue
		}
		m.config.Log.Info("container that the CRI plugin does not know removed", "container", id)
	}
}

func (m *Manager) removeOrphan(ctx context.Context, id string) error {
	first := &process{m.shim, id, ""}
	err := first.Kill(ctx, uint32(unix.SIGKILL), true)
	if err == nil {
		_, err = first.wait(ctx)
	}
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsFailedPrecondition(err) { // it has ended, or not started
		return err
	}
	_, err = m.Delete(ctx, id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// known reports whether the CRI plugin has a record of a container, or of a sandbox with a container of its own.
func (m *Manager) known(id string) bool {
	for _, kind := range []string{"containers", "sandboxes"} {
		_, err := os.Lstat(filepath.Join(filepath.Dir(m.config.records()), kind, id))
		if !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}
