package checkpoint

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Names of files in a layer (OCI image layer specification): the prefix of a removed file, and the file that hides
// what lower layers have in its directory.
const (
	removedPrefix = ".wh."
	opaqueFile    = ".wh..wh..opq"
)

// layer is a writable layer of an overlay that is written as an OCI layer. The container runs meanwhile: its files may
// change, go away or become links that lead elsewhere. So files are opened below root.
type layer struct {
	root *os.Root
	*tar.Writer
}

// writeChanges writes the upper directory of an overlay as an OCI layer. A container whose root is another kind of file
// system has none, which is an error.
func writeChanges(ctx context.Context, w io.Writer, upper string) error {
	if upper == "" {
		return errors.New("find the changed files: the container's root is not an overlay file system")
	}
	root, err := os.OpenRoot(upper)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // it is only read
	l := layer{root, tar.NewWriter(w)}
	err = fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && name != "." {
			err = errors.Join(ctx.Err(), l.add(name))
		}
		if errors.Is(err, fs.ErrNotExist) { // the container has removed it
			return nil
		}
		return err
	})
	return errors.Join(err, l.Close())
}

// add writes a file of the upper directory.
func (l layer) add(name string) error {
	info, err := l.root.Lstat(name)
	if err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case mode.IsRegular(), mode.IsDir():
		f, err := l.root.OpenFile(name, unix.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO does not block it
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // it is only read
		return l.content(name, f)
	case mode&fs.ModeSymlink != 0:
		target, err := l.root.Readlink(name)
		if err != nil {
			return err
		}
		return l.header(name, info, target, nil)
	case mode&fs.ModeSocket != 0: // an archive has none
		return nil
	case isRemoved(info):
		return l.mark(path.Join(path.Dir(name), removedPrefix+path.Base(name)))
	}
	return l.header(name, info, "", nil) // a FIFO or a device
}

// content writes a file or a directory that is open. A file that grows meanwhile has its earlier size, and one that
// shrinks ends with zeros.
func (l layer) content(name string, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	records := map[string]string{}
	const capabilities = "security.capability"
	if value := attribute(f, capabilities); value != "" {
		records["SCHILY.xattr."+capabilities] = value
	}
	if err := l.header(name, info, "", records); err != nil {
		return err
	}
	switch {
	case info.Mode().IsRegular():
		_, err = io.CopyN(l, io.MultiReader(f, zeros{}), info.Size())
	case info.IsDir() && attribute(f, "trusted.overlay.opaque") == "y":
		err = l.mark(path.Join(name, opaqueFile))
	}
	return err
}

func (l layer) header(name string, info fs.FileInfo, target string, records map[string]string) error {
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.PAXRecords, h.Format = name, records, tar.FormatPAX
	if info.IsDir() {
		h.Name += "/"
	}
	// The names of users are those of this machine.
	h.Uname, h.Gname, h.AccessTime, h.ChangeTime = "", "", time.Time{}, time.Time{}
	return l.WriteHeader(h)
}

// mark writes an empty file, whose name has a meaning.
func (l layer) mark(name string) error {
	return l.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Format: tar.FormatPAX})
}

// isRemoved reports whether a file of the upper directory says that the file of a lower one is removed.
func isRemoved(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode()&fs.ModeCharDevice != 0 && stat.Rdev == 0
}

// attribute returns an extended attribute of a file. It is empty if there is none.
func attribute(f *os.File, name string) string {
	value := make([]byte, 256)
	n, err := unix.Fgetxattr(int(f.Fd()), name, value)
	if err != nil {
		return ""
	}
	return string(value[:n])
}

// zeros is an endless file of zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
