package hostpath

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
)

// Kind serves hostPath volumes.
type Kind struct{}

// Dir is empty: the volume has no directory in the pod's directory.
func (Kind) Dir() string { return "" }

// Serves reports whether the volume is a hostPath.
func (Kind) Serves(v *corev1.Volume) bool { return v.HostPath != nil }

// ServesPersistent reports whether the PersistentVolume is a hostPath.
func (Kind) ServesPersistent(v *corev1.PersistentVolume) bool { return v.Spec.HostPath != nil }

// Features lets the content keep its labels from the host.
func (Kind) Features(volume.Request) volume.Features { return volume.Features{HostLabels: true} }

// Publish checks the path against the volume's type, and makes the file or directory if the type requires it.
func (Kind) Publish(_ context.Context, r volume.Request) (string, error) {
	path, kind, err := sourceOf(r)
	if err != nil {
		return "", err
	}
	f, err := open(path, kind)
	if f != nil {
		f.Close()
	}
	return path, err
}

// Open opens the path with the same checks as Publish.
func (Kind) Open(r volume.Request) (*os.File, error) {
	path, kind, err := sourceOf(r)
	if err != nil {
		return nil, err
	}
	if kind == corev1.HostPathUnset {
		// Runtimes make a directory too if the path does not exist.
		f, err := open(path, kind)
		if f != nil || err != nil {
			return f, err
		}
		return safepath.HostMkdirAll(path, 0o755)
	}
	return open(path, kind)
}

// Unpublish has nothing to undo.
func (Kind) Unpublish(context.Context, string) error { return nil }

// sourceOf returns the path and type that a volume asks for.
func sourceOf(r volume.Request) (path string, kind corev1.HostPathType, err error) {
	source := r.Volume.HostPath
	if r.Persistent != nil {
		source = r.Persistent.Spec.HostPath
	}
	if !filepath.IsAbs(source.Path) {
		return "", "", fmt.Errorf("invalid HostPath %q: not an absolute path", source.Path)
	}
	if slices.Contains(strings.Split(source.Path, "/"), "..") {
		return "", "", fmt.Errorf("invalid HostPath %q: must not contain '..'", source.Path)
	}
	if source.Type != nil {
		kind = *source.Type
	}
	return filepath.Clean(source.Path), kind, nil
}

// fileType returns the check of a file's mode for a type, and the noun for it in Kubernetes' error.
func fileType(kind corev1.HostPathType) (is func(fs.FileMode) bool, noun string, err error) {
	switch kind {
	case corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory:
		return fs.FileMode.IsDir, "a directory", nil
	case corev1.HostPathFileOrCreate, corev1.HostPathFile:
		return fs.FileMode.IsRegular, "a file", nil
	case corev1.HostPathSocket:
		return func(m fs.FileMode) bool { return m&fs.ModeSocket != 0 }, "a socket file", nil
	case corev1.HostPathCharDev:
		return func(m fs.FileMode) bool { return m&fs.ModeCharDevice != 0 }, "a character device", nil
	case corev1.HostPathBlockDev:
		return func(m fs.FileMode) bool {
			return m&fs.ModeDevice != 0 && m&fs.ModeCharDevice == 0
		}, "a block device", nil
	default:
		return nil, "", fmt.Errorf("%q is an invalid volume type", kind)
	}
}

// open opens the target of the path and checks its type. It refuses a path through the links of /proc/PID, which lead
// the runtime to another target than the agent. It returns nil if nothing exists at the path and the volume has no
// type.
func open(path string, kind corev1.HostPathType) (*os.File, error) {
	f, err := openOrMake(path, kind)
	if err == nil {
		err = check(f, path, kind)
	}
	switch {
	case err == nil:
		return f, nil
	case f != nil:
		f.Close()
		return nil, err
	case errors.Is(err, safepath.ErrEscape):
		return nil, fmt.Errorf("invalid HostPath %q: the path passes through a link of /proc or a loop: %w", path, err)
	case errors.Is(err, os.ErrNotExist) && kind == corev1.HostPathUnset:
		return nil, nil
	case errors.Is(err, os.ErrNotExist):
		_, noun, unknown := fileType(kind)
		if unknown != nil {
			return nil, unknown
		}
		return nil, fmt.Errorf("hostPath type check failed: %s is not %s: no such file", path, noun)
	}
	return nil, err
}

func check(f *os.File, path string, kind corev1.HostPathType) error {
	if kind == corev1.HostPathUnset {
		return nil
	}
	is, noun, err := fileType(kind)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !is(info.Mode()) {
		return fmt.Errorf("hostPath type check failed: %s is not %s", path, noun)
	}
	return nil
}

func openOrMake(path string, kind corev1.HostPathType) (*os.File, error) {
	if kind == corev1.HostPathDirectoryOrCreate {
		return safepath.HostMkdirAll(path, 0o755)
	}
	if kind == corev1.HostPathFileOrCreate {
		if err := safepath.HostCreate(path, 0o644); err != nil {
			return nil, err
		}
	}
	return safepath.Host(path)
}
