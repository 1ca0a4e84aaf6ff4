package source

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/berth-run/berth/internal/base/document"
)

// errNoManifest is a name in the directory that is not a file to be read, such
// as a directory.
var errNoManifest = errors.New("is not a manifest")

// eligible says whether a name in a manifest directory is read: names that
// begin with a dot are not, as for the kubelet, nor are the backups that editors
// leave beside a file (name~).
func eligible(name string) bool {
	return name != "" && !strings.HasPrefix(name, ".") && !strings.HasSuffix(name, "~")
}

// readIn reads a file of a directory. Links are followed inside the directory
// only; os.Root sees to it without comparing paths, so that a link cannot be
// changed in between. The directory is not kept open: the kernel does not tell
// of the removal of one that is.
func readIn(dir, name string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // only read from
	// O_NONBLOCK: opening a named pipe must not wait for its writer.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, linkError(root, name, bare(err))
	}
	return readFile(f)
}

// readAt reads the one file that the operator named; it may be a link to anywhere.
func readAt(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, bare(err)
	}
	return readFile(f)
}

// bare is an error without the path: the message that it goes into has it already.
func bare(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
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
		return nil, fmt.Errorf("is a %s, only regular files are read", kind(info.Mode()))
	case info.Size() > document.MaxSize:
		return nil, document.ErrTooLarge
	}
	return document.ReadAll(f)
}

// linkError says in words why a name in a directory cannot be opened.
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

func kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	default:
		return "special file"
	}
}
