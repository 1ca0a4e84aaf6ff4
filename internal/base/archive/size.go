package archive

import (
	"archive/tar"
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
)

// sizeRecord is the record of a directory's first header that has the size of the stream in bytes. The header of a file
// has a size anyway.
const sizeRecord = "BERTH.size"

// Size returns about how many bytes Pack writes for f. Files may change until then.
func Size(ctx context.Context, f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.IsDir() {
		return entrySize(info), nil
	}
	root, err := os.OpenRoot(fdPath(f))
	if err != nil {
		return 0, err
	}
	defer func() { _ = root.Close() }() // nothing was written with it
	return sizeBelow(ctx, root)
}

// sizeBelow returns about how many bytes the content of a directory has in a stream.
func sizeBelow(ctx context.Context, root *os.Root) (bytes int64, err error) {
	err = fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted since the directory was read
		}
		if err == nil {
			bytes += entrySize(info)
		}
		return err
	})
	return bytes, err
}

// entrySize returns the size of an entry: its headers, which Pack writes in the PAX format, and full blocks of content.
func entrySize(info fs.FileInfo) int64 {
	const block, headers = 512, 3
	size := int64(headers * block)
	if info.Mode().IsRegular() {
		size += (info.Size() + block - 1) / block * block
	}
	return size
}

// expected returns how many bytes a stream with this first header has, about, and 0 if it does not say so. The number
// comes from the other side and must not decide anything.
func expected(first *tar.Header) int64 {
	if first.Typeflag == tar.TypeReg {
		return entrySize(first.FileInfo())
	}
	bytes, err := strconv.ParseInt(first.PAXRecords[sizeRecord], 10, 64)
	if err != nil || bytes < 0 {
		return 0
	}
	return bytes
}
