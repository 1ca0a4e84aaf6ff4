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

	"github.com/berth-run/berth/internal/safepath"
	"github.com/berth-run/berth/internal/volume"
)

// Kind serves hostPath volumes.
type Kind struct{}

// Dir is empty: there is nothing of the volume in the pod's directory.
func (Kind) Dir() string { return "" }

// Serves says whether the volume is a hostPath.
func (Kind) Serves(v *corev1.Volume) bool { return v.HostPath != nil }

// Publish checks the path against the type that the pod asks for, and makes
// what is to be made.
func (Kind) Publish(_ context.Context, r volume.Request) (string, error) {
	source := r.Volume.HostPath
	if !filepath.IsAbs(source.Path) {
		return "", fmt.Errorf("invalid HostPath %q: it is not an absolute path", source.Path)
	}
	if slices.Contains(strings.Split(source.Path, "/"), "..") {
		return "", fmt.Errorf("invalid HostPath %q: must not contain '..'", source.Path)
	}
	path := filepath.Clean(source.Path)
	kind := corev1.HostPathUnset
	if source.Type != nil {
		kind = *source.Type
	}
	return path, check(path, kind)
}

// Unpublish has nothing to undo.
func (Kind) Unpublish(context.Context, string) error { return nil }

// sort is what a path has to be, and how Kubernetes says that it is not.
func sort(kind corev1.HostPathType) (is func(fs.FileMode) bool, noun string, err error) {
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
		return func(m fs.FileMode) bool { return m&fs.ModeDevice != 0 && m&fs.ModeCharDevice == 0 }, "a block device", nil
	default:
		return nil, "", fmt.Errorf("%q is an invalid volume type", kind)
	}
}

// check looks at what the path leads to by file descriptor. A path through the
// links of /proc/PID is refused: they lead the runtime elsewhere than us.
func check(path string, kind corev1.HostPathType) error {
	f, err := open(path, kind)
	if f != nil {
		defer f.Close()
	}
	if errors.Is(err, safepath.ErrEscape) {
		return fmt.Errorf("invalid HostPath %q: it passes through a link of /proc or a loop: %w", path, err)
	}
	if kind == corev1.HostPathUnset {
		return nil // whatever it is; the runtime makes a directory when nothing is there
	}
	is, noun, unknown := sort(kind)
	if unknown != nil {
		return unknown
	}
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("hostPath type check failed: %s is not %s: it does not exist", path, noun)
	}
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

func open(path string, kind corev1.HostPathType) (*os.File, error) {
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
