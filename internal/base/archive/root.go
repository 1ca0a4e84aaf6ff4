package archive

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/safepath"
)

// PackIn packs the file at a path as seen by a process whose root directory is root.
func PackIn(ctx context.Context, root *os.File, name string, w io.Writer) error {
	f, err := safepath.InRoot(root, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer f.Close()
	return Pack(ctx, f, w)
}

// UnpackIn unpacks a stream at the path to, as seen by a process whose root directory is root. If to is a directory, it
// unpacks into to/name. It makes links to any target: only that process follows them.
func UnpackIn(root *os.File, to, name string, owner *Owner, r io.Reader) (skipped []string, err error) {
	if dir, err := safepath.InRoot(root, to, unix.O_PATH|unix.O_DIRECTORY); err == nil {
		to = path.Join(to, name)
		if err := errors.Join(safepath.Name(name), dir.Close()); err != nil {
			return nil, err
		}
	}
	return Unpack(r, Target{
		File:  func(mode fs.FileMode) (*os.File, error) { return safepath.CreateInRoot(root, to, mode) },
		Dir:   func(mode fs.FileMode) (*os.File, error) { return safepath.MkdirInRoot(root, to, mode|0o700) },
		Owner: owner, Links: true,
	})
}
