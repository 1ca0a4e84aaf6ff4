package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/safepath"
	"github.com/berth-run/berth/internal/volume"
)

// Kind serves local volumes.
type Kind struct{}

// Dir is empty: there is nothing of the volume in the pod's directory.
func (Kind) Dir() string { return "" }

// Serves is false: only a PersistentVolume is local.
func (Kind) Serves(*corev1.Volume) bool { return false }

// ServesPersistent says whether the volume is local.
func (Kind) ServesPersistent(v *corev1.PersistentVolume) bool { return v.Spec.Local != nil }

// Features has the pod's fsGroup applied, as the kubelet does.
func (Kind) Features(volume.Request) volume.Features {
	return volume.Features{FSGroup: true, Block: true}
}

// Publish checks what is at the path.
func (k Kind) Publish(_ context.Context, r volume.Request) (string, error) {
	path := r.Persistent.Spec.Local.Path
	f, err := open(path, r.Block)
	if err != nil {
		return "", err
	}
	return path, f.Close()
}

// Open opens the directory as Publish has found it good.
func (Kind) Open(r volume.Request) (*os.File, error) {
	return open(r.Persistent.Spec.Local.Path, r.Block)
}

// Unpublish has nothing to undo.
func (Kind) Unpublish(context.Context, string) error { return nil }

func open(path string, block bool) (*os.File, error) {
	if !filepath.IsAbs(path) || slices.Contains(strings.Split(path, "/"), "..") {
		return nil, fmt.Errorf("invalid path %q of the local volume: it is to be absolute, without '..'", path)
	}
	f, err := safepath.Host(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("local volume path %q does not exist", path)
	case err != nil:
		return nil, fmt.Errorf("open local volume: %w", err)
	}
	info, err := f.Stat()
	if err == nil {
		err = check(path, info.Mode(), block)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func check(path string, mode fs.FileMode, block bool) error {
	isDevice := mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0
	switch {
	case block && !isDevice:
		return fmt.Errorf("local volume path %q is not a block device, and the volumeMode is Block", path)
	case !block && isDevice:
		return fmt.Errorf("local volume path %q is a block device: mount its file system on a directory and name that, or set volumeMode: Block", path)
	case !block && !mode.IsDir():
		return fmt.Errorf("local volume path %q is not a directory", path)
	}
	return nil
}
