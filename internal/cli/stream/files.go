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

// Pack hands the stream of a local file or directory to take.
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

// Unpack puts a stream at target, or by the name into the directory that it is.
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
