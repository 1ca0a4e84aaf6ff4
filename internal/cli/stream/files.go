package stream

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/archive"
)

// Pack packs a local file or directory and calls take with the stream (package archive).
func Pack(ctx context.Context, name string, take func(io.Reader) error) error {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := archive.Pack(ctx, f, w)
		w.CloseWithError(err)
		packed <- err
	}()
	err = take(r)
	r.CloseWithError(io.ErrClosedPipe)
	if packErr := <-packed; packErr != nil && !errors.Is(packErr, io.ErrClosedPipe) {
		return packErr
	}
	return err
}

// Unpack writes a stream to target. If target is a directory, the files go into it under the given name. It
// returns the files that were left out.
func Unpack(r io.Reader, target, name string) (skipped []string, err error) {
	if info, err := os.Stat(target); err == nil && info.IsDir() && name != "/" {
		target = filepath.Join(target, name)
	}
	return archive.Unpack(r, archive.Target{
		File: func(mode fs.FileMode) (*os.File, error) {
			return os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, mode)
		},
		Dir: func(mode fs.FileMode) (*os.File, error) {
			if err := os.Mkdir(target, mode|0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
			return os.Open(target)
		},
	})
}
