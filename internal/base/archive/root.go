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

// PackIn packs what a path names for a process whose root directory is root.
func PackIn(ctx context.Context, root *os.File, name string, w io.Writer) error {
	f, err := safepath.InRoot(root, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer f.Close()
	return Pack(ctx, f, w)
}

// UnpackIn puts a stream at the path that to names for a process whose root
// directory is root or, when that is a directory, into it by the name. Links are
// made wherever they point: they are followed by that process only.
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
