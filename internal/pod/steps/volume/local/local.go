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

	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/disk"
)

// Kind serves local volumes.
type Kind struct {
	Formatter disk.Formatter
}

// Dir is the name of the directory for the shared mounts of devices. A pod's directory contains nothing of the volume.
func (Kind) Dir() string { return "kubernetes.io~local-volume" }

// Serves is false: only PersistentVolumes are local.
func (Kind) Serves(*corev1.Volume) bool { return false }

// ServesPersistent reports whether the PersistentVolume is local.
func (Kind) ServesPersistent(v *corev1.PersistentVolume) bool { return v.Spec.Local != nil }

// Features says that the pod's fsGroup is applied, as under the kubelet.
func (Kind) Features(volume.Request) volume.Features {
	return volume.Features{FSGroup: true, Block: true}
}

// StageID is the path. It may lead to a device, whose file system is mounted once.
func (Kind) StageID(r volume.Request) string {
	if r.Block {
		return ""
	}
	return r.Persistent.Spec.Local.Path
}

// Stage mounts the file system of a block device. It formats an empty device first.
func (k Kind) Stage(ctx context.Context, r volume.Request) error {
	device, err := device(r)
	if device == "" || err != nil {
		return err
	}
	spec := r.Persistent.Spec
	d := disk.Disk{Device: device, Target: r.Stage, Options: spec.MountOptions, ReadOnly: r.ReadOnly}
	if spec.Local.FSType != nil {
		d.FSType = *spec.Local.FSType
	}
	if len(spec.AccessModes) == 1 && spec.AccessModes[0] == corev1.ReadOnlyMany {
		d.Options = append(slices.Clone(d.Options), "ro")
	}
	return k.Formatter.Mount(ctx, d)
}

// Unstage unmounts the file system.
func (Kind) Unstage(_ context.Context, stage string) error { return volume.Unmount(stage) }

// Publish checks the type of the file at the path. It returns the shared mount for the file system of a device, and the
// path otherwise.
func (Kind) Publish(_ context.Context, r volume.Request) (string, error) {
	path := r.Persistent.Spec.Local.Path
	f, err := open(path, r.Block)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if isDevice(f) && !r.Block {
		return r.Stage, nil
	}
	return path, nil
}

// Open opens the path with the same checks as Publish. It returns nil for the file system of a device, because no pod
// can replace its mount.
func (Kind) Open(r volume.Request) (*os.File, error) {
	f, err := open(r.Persistent.Spec.Local.Path, r.Block)
	if err == nil && isDevice(f) && !r.Block {
		return nil, f.Close()
	}
	return f, err
}

// Unpublish does nothing.
func (Kind) Unpublish(context.Context, string) error { return nil }

// device is the path of the volume's block device with links resolved, or "" for a directory.
func device(r volume.Request) (string, error) {
	f, err := open(r.Persistent.Spec.Local.Path, false)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if !isDevice(f) {
		return "", nil
	}
	return safepath.Location(f)
}

func isDevice(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && isBlock(info.Mode())
}

func isBlock(mode fs.FileMode) bool {
	return mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0
}

func open(path string, block bool) (*os.File, error) {
	if !filepath.IsAbs(path) || slices.Contains(strings.Split(path, "/"), "..") {
		return nil, fmt.Errorf("invalid path %q of the local volume: must be absolute, without '..'", path)
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
	switch {
	case block && !isBlock(mode):
		return fmt.Errorf("local volume path %q is not a block device, although the volumeMode is Block", path)
	case !block && !mode.IsDir() && !isBlock(mode):
		return fmt.Errorf("local volume path %q is neither a directory nor a block device", path)
	}
	return nil
}
