package safepath

import (
	"errors"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// InRoot opens a path as seen by a process whose root directory is root. Links, also absolute ones, lead to places
// below root (RESOLVE_IN_ROOT). It does not follow the links of /proc to files of other processes. flags are open(2)'s,
// without O_CREAT.
func InRoot(root *os.File, name string, flags int) (*os.File, error) {
	return openat2(int(root.Fd()), name, uint64(flags), unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
}

// CreateInRoot opens a file for writing from its beginning, and creates it if it does not exist. It does not wait for
// the reader of a FIFO.
func CreateInRoot(root *os.File, name string, mode os.FileMode) (*os.File, error) {
	f, err := InRoot(root, name, unix.O_WRONLY|unix.O_TRUNC|unix.O_NONBLOCK)
	if !errors.Is(err, unix.ENOENT) {
		return f, err
	}
	dir, err := parent(root, name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), path.Base(name),
		unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(mode.Perm()))
	if err != nil {
		return nil, wrap("create", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// MkdirInRoot opens a directory, and makes it if it does not exist.
func MkdirInRoot(root *os.File, name string, mode os.FileMode) (*os.File, error) {
	dir, err := parent(root, name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := unix.Mkdirat(int(dir.Fd()), path.Base(name), uint32(mode.Perm())); err != nil &&
		!errors.Is(err, unix.EEXIST) {
		return nil, wrap("make directory", name, err)
	}
	return InRoot(root, name, unix.O_RDONLY|unix.O_DIRECTORY)
}

// Direct reports whether a relative path below dir is a directory without a link on the way. It is true for a path that
// does not exist.
func Direct(dir *os.File, rel string) (bool, error) {
	f, err := openat2(int(dir.Fd()), rel, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	switch {
	case errors.Is(err, unix.ELOOP):
		return false, nil
	case err != nil:
		return true, IgnoreMissing(err)
	}
	return true, f.Close()
}

func parent(root *os.File, name string) (*os.File, error) {
	return InRoot(root, path.Dir(path.Clean("/"+name)), unix.O_PATH|unix.O_DIRECTORY)
}
