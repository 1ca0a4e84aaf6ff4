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

// Size returns about how many bytes Pack passes on for a local file or directory, or 0 if it cannot be read. Pack
// reports the reason.
func Size(ctx context.Context, name string) int64 {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	bytes, err := archive.Size(ctx, f)
	if err != nil {
		return 0
	}
	return bytes
}

// Unpack writes a stream to target. If target is a directory, the files go into it under the given name. It
// returns the files that were left out. expect is called with about how many bytes the stream has, if that is known.
func Unpack(r io.Reader, target, name string, expect func(bytes int64)) (skipped []string, err error) {
	if info, err := os.Stat(target); err == nil && info.IsDir() && name != "/" {
		target = filepath.Join(target, name)
	}
	return archive.Unpack(r, archive.Target{
		Expect: expect,
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
