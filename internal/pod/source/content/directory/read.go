package directory

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/document"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/model/object"
)

// errNoManifest is the error for a name in the directory that is not a file, such as a subdirectory.
var errNoManifest = errors.New("is not a manifest")

// eligible reports whether a name in a manifest directory is read. Names with a leading dot are not, as in the kubelet,
// and neither are backups of editors (name~).
func eligible(name string) bool {
	return name != "" && !strings.HasPrefix(name, ".") && !strings.HasSuffix(name, "~")
}

// readIn reads a file of a directory. It follows links only within the directory. os.Root enforces this without
// comparing paths, so a link cannot be swapped meanwhile. The directory is not kept open, because inotify does not
// report the removal of an open directory.
func readIn(dir, name string) ([]byte, object.Directory, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, object.Directory{}, err
	}
	defer func() { _ = root.Close() }() // opened only for reading
	id, err := identifyRoot(root)
	if err != nil {
		return nil, id, err
	}
	// O_NONBLOCK: opening a named pipe must not block until it has a writer.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, id, linkError(root, name, bare(err))
	}
	text, err := readFile(f)
	return text, id, err
}

// readAt reads the file that the operator configured. It may be a link to anywhere.
func readAt(path string) ([]byte, object.Directory, error) {
	id, err := identify(filepath.Dir(path))
	if err != nil {
		return nil, id, bare(err)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, id, bare(err)
	}
	text, err := readFile(f)
	return text, id, err
}

// identifyRoot returns the identity of an open directory.
func identifyRoot(root *os.Root) (object.Directory, error) {
	f, err := root.Open(".")
	if err != nil {
		return object.Directory{}, err
	}
	return identifyFile(f)
}

// identify returns the identity of the directory at a path.
func identify(path string) (object.Directory, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return object.Directory{}, err
	}
	return identifyFile(f)
}

// identifyFile closes the directory.
func identifyFile(f *os.File) (object.Directory, error) {
	defer f.Close()
	var s unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &s); err != nil {
		return object.Directory{}, fmt.Errorf("identify directory %s: %w", f.Name(), err)
	}
	id := object.Directory{Device: unix.Mkdev(s.Dev_major, s.Dev_minor), Inode: s.Ino,
		Mount: s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0}
	if h, _, err := unix.NameToHandleAt(int(f.Fd()), "", unix.AT_EMPTY_PATH); err == nil {
		id.Handle = hex.EncodeToString(h.Bytes())
	}
	return id, nil
}

// bare returns an error without its path, which the caller's message has already.
func bare(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// version identifies the content of a file. Each write changes the time of the inode's last change, which nobody can
// set (inode(7)).
type version struct {
	device, inode, size uint64
	changed             unix.StatxTimestamp
}

// tick is longer than the step of a file system's clock: after it, a write also changes the time.
const tick = 2 * time.Second

// versionAt returns the version of the file at a path, from the server if the file system has one. It is zero if the
// file may be written again without a new version, or if there is none.
func versionAt(path string, now time.Time) version {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &s)
	if err != nil || now.Sub(time.Unix(s.Ctime.Sec, int64(s.Ctime.Nsec))) <= tick {
		return version{}
	}
	return version{device: unix.Mkdev(s.Dev_major, s.Dev_minor), inode: s.Ino, size: s.Size, changed: s.Ctime}
}

func readFile(f *os.File) ([]byte, error) {
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, errNoManifest
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("is a %s, only regular files are read", safepath.TypeName(info.Mode()))
	case info.Size() > document.MaxSize:
		return nil, document.ErrTooLarge
	}
	return document.ReadAll(f)
}

// linkError explains why a name in a directory cannot be opened.
func linkError(root *os.Root, name string, err error) error {
	info, statErr := root.Lstat(name)
	if statErr != nil || info.Mode()&fs.ModeSymlink == 0 {
		return err
	}
	to, readErr := root.Readlink(name)
	if readErr != nil {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("is a symbolic link to %s, which does not exist", to)
	}
	return fmt.Errorf("is a symbolic link to %s: only relative links that stay within %s are followed (%w)", to,
		root.Name(), err)
}
