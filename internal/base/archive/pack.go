package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Pack writes the regular file or directory that f is open on (O_PATH suffices) to w. Links in a directory are packed
// as links. Other types of files are packed with name and type only.
func Pack(ctx context.Context, f *os.File, w io.Writer) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("pack files: %w", err)
	}
	p := packer{ctx: ctx, w: tar.NewWriter(w)}
	if info.IsDir() {
		err = p.directory(f)
	} else {
		err = p.entry(".", info, "", func() (*os.File, error) { return os.OpenFile(fdPath(f), readFlags, 0) })
	}
	if err == nil {
		err = p.w.Close()
	}
	if err != nil {
		return fmt.Errorf("pack files: %w", err)
	}
	return nil
}

// readFlags do not wait for a writer if a file was replaced by a FIFO.
const readFlags = os.O_RDONLY | unix.O_NONBLOCK

// fdPath is a path to an open file for calls that need a path.
func fdPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

type packer struct {
	ctx context.Context
	w   *tar.Writer
	// size goes into the first header of a directory.
	size int64
}

func (p packer) directory(f *os.File) error {
	root, err := os.OpenRoot(fdPath(f))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing was written with it
	if p.size, err = sizeBelow(p.ctx, root); err != nil {
		return err
	}
	return fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = p.ctx.Err()
		}
		if err != nil {
			return err
		}
		info, err := root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted since the directory was read
		}
		link := ""
		if err == nil && info.Mode().Type() == fs.ModeSymlink {
			link, err = root.Readlink(name)
		}
		if err != nil {
			return err
		}
		return p.entry(name, info, link, func() (*os.File, error) {
			return root.OpenFile(name, readFlags|unix.O_NOFOLLOW, 0)
		})
	})
}

func (p packer) entry(name string, info fs.FileInfo, link string, open func() (*os.File, error)) error {
	if info.Mode().Type() == fs.ModeSocket { // tar has no type for sockets
		return p.w.WriteHeader(&tar.Header{Typeflag: tar.TypeFifo, Name: name, Mode: int64(info.Mode().Perm())})
	}
	if !info.Mode().IsRegular() {
		return p.header(name, info, link)
	}
	f, err := open()
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s was replaced while it was read", name)
	}
	if err := p.header(name, info, ""); err != nil {
		return err
	}
	if _, err := io.CopyN(p.w, f, info.Size()); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("file became shorter while it was read")
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (p packer) header(name string, info fs.FileInfo, link string) error {
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name, h.Uname, h.Gname = name, "", ""
	h.Format = tar.FormatPAX // names, sizes and times of any kind
	if name == "." && info.IsDir() {
		h.PAXRecords = map[string]string{sizeRecord: strconv.FormatInt(p.size, 10)}
	}
	return p.w.WriteHeader(h)
}
