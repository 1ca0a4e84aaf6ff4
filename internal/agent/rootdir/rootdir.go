package rootdir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/config/recall"
)

// Dir is a directory of an agent, open for the removal of its files. A link on its path was followed once, when it was
// opened.
type Dir struct {
	// Path is the directory's path without links, as the mount table has it.
	Path string
	// at is the open directory, so that nothing that replaces it is emptied.
	at *os.File
	// keeps reports whether Remove keeps an entry of the directory.
	keeps func(name string) bool
	// fixed keeps the directory itself: the administrator has placed it, as a mount point or behind a link.
	fixed bool
}

// Open opens a root directory. In the kubelet's directory (config.JoinedRootDir), Remove removes only the entries of
// pods and those that agents make. It keeps the rest: the node's certificates, and the files of other programs such as
// kubeadm.
func Open(root string) (*Dir, error) {
	kubelet, err := filepath.EvalSymlinks(config.JoinedRootDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("find the kubelet's directory: %w", err)
	}
	d, err := open(root)
	if err != nil {
		return nil, err
	}
	if d.Path == kubelet {
		d.keeps = func(name string) bool { return !slices.Contains(made(), name) }
		d.fixed = true
	}
	return d, nil
}

// OpenRun opens the directory of sockets and mounts. Agents with other root directories may share it, so Remove removes
// only the entries that agents make, and the directory if it is empty then.
func OpenRun(dir string) (*Dir, error) {
	d, err := open(dir)
	if err != nil {
		return nil, err
	}
	d.keeps = func(name string) bool { return !slices.Contains([]string{"berth.sock", "docker", "runtime"}, name) }
	return d, nil
}

func open(dir string) (*Dir, error) {
	path, err := filepath.EvalSymlinks(dir)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open directory: %w", err)
	}
	at, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open directory: %w", err)
	}
	link, err := os.Lstat(dir)
	if err == nil {
		var mounted bool
		mounted, err = mountPoint(path)
		if err == nil {
			return &Dir{Path: path, at: at, fixed: mounted || link.Mode()&os.ModeSymlink != 0,
				keeps: func(string) bool { return false }}, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("open directory %s: %w", dir, err), at.Close())
}

// Close closes the directory.
func (d *Dir) Close() error { return d.at.Close() }

// Within reports whether Remove of outer removes this directory too.
func (d *Dir) Within(outer *Dir) bool {
	rel, below := strings.CutPrefix(d.Path, outer.Path+"/")
	entry, _, _ := strings.Cut(rel, "/")
	return below && !outer.keeps(entry)
}

// made returns the names of the entries that agents make, or that a kubelet makes for pods.
func made() []string {
	return []string{
		recall.File, "allocations", "applied", "checkpoints", "claims.json", "crashes", "device-plugins", "devices",
		"docker", "dra", "events", "evictions.json", "history", "identities.json", "image_manager", "images.json",
		"iptables-chains", lock.RootFile, "offline", "offline.key", "plugins", "plugins_registry", "pod-resources",
		"pods", "probes", "resources", "run", "runtime", "runtimes.json", "shutdown.json", "static", "status",
		"timelines", "volumes",
		// A kubelet's records of the same pods. The next kubelet would trust them.
		"actuated_pods_state", "allocated_pods_state", "cpu_manager_state", "dra_manager_state", "memory_manager_state",
	}
}

// Remove removes the directory's files, and the directory itself unless it must stay: as the kubelet's directory, as a
// mount point, or because a link leads to it. It enters no mount. The lock file is removed last, so that no agent
// begins to work on the rest. The error names everything that stays.
//
// The caller must have ended all pods, and must hold the lock of a root directory.
func (d *Dir) Remove(ctx context.Context) error {
	stay, err := d.mounts()
	if err != nil {
		return err
	}
	w := removal{mounts: paths(stay)}
	entries, err := names(ctx, d.at)
	for _, name := range slices.DeleteFunc(entries, d.keeps) {
		if name != lock.RootFile {
			w.entry(ctx, d.at, d.Path, name)
		}
	}
	if err := errors.Join(append(w.failed, err)...); err != nil {
		return err // the lock file stays with the rest
	}
	if !d.keeps(lock.RootFile) {
		if err := safepath.RemoveEntry(ctx, d.at, lock.RootFile); err != nil {
			return fmt.Errorf("%s stays: %w", filepath.Join(d.Path, lock.RootFile), err)
		}
	}
	if d.fixed {
		return nil
	}
	err = os.Remove(d.Path)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, os.ErrNotExist) {
		return nil // it has entries that stay, or an agent has begun to work there since the lock file was removed
	}
	return err
}

// removal removes the files beside mounts that stay.
type removal struct {
	mounts []string
	failed []error
}

// entry removes an entry of an open directory, whose path is parent.
func (w *removal) entry(ctx context.Context, dir *os.File, parent, name string) {
	path := filepath.Join(parent, name)
	switch holds(path, w.mounts) {
	case mountHere:
		w.failed = append(w.failed, fmt.Errorf("%s stays with its files: it is a mount point; "+
			"unmount it, or remove its files, and reset again", path))
	case mountBelow:
		w.beside(ctx, dir, path, name)
	case noMount:
		if err := safepath.RemoveEntry(ctx, dir, name); err != nil {
			w.failed = append(w.failed, fmt.Errorf("%s stays: %w", path, err))
		}
	}
}

// beside empties a directory that has a mount point somewhere below it.
func (w *removal) beside(ctx context.Context, parent *os.File, path, name string) {
	dir, err := safepath.OpenDir(parent, name)
	if err == nil {
		defer dir.Close()
		var children []string
		children, err = names(ctx, dir)
		for _, child := range children {
			w.entry(ctx, dir, path, child)
		}
	}
	if err != nil {
		w.failed = append(w.failed, fmt.Errorf("%s stays: %w", path, err))
	}
}

func names(ctx context.Context, dir *os.File) (all []string, err error) {
	err = safepath.Each(ctx, dir, func(name string) error {
		all = append(all, name)
		return nil
	})
	return all, err
}
