package safepath

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrEscape is the error for a path that leads out of its directory: by "..", by an absolute link, or by a link such as
// those in /proc/PID/fd.
var ErrEscape = errors.New("the path leads out of its directory")

// ErrNotFile is the error for a file that is not a regular file.
var ErrNotFile = errors.New("not a regular file")

// openTries bounds the calls of openat2 after EAGAIN: the kernel could not rule out that a rename has moved ".."
// outside.
const openTries = 128

// Name refuses a text that cannot be the name of a directory entry.
func Name(s string) error {
	if s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/\x00") {
		return fmt.Errorf("%q cannot be the name of a file", s)
	}
	return nil
}

// Clean returns a relative path in its shortest form. It refuses an absolute path and "..". "" and "." are the
// directory itself.
func Clean(rel string) (string, error) {
	if filepath.IsAbs(rel) {
		return "", fmt.Errorf("%q is not a relative path", rel)
	}
	for part := range strings.SplitSeq(rel, "/") {
		if part == ".." {
			return "", fmt.Errorf("%q must not contain \"..\"", rel)
		}
	}
	return path.Clean(rel), nil
}

// Host opens a path of the host for reference (O_PATH). It follows symbolic links, except for the links of /proc to
// files of other processes.
func Host(name string) (*os.File, error) {
	return openat2(unix.AT_FDCWD, name, unix.O_PATH, unix.RESOLVE_NO_MAGICLINKS)
}

// Location returns the path of an open file, with links resolved. The kernel follows renames of the file (proc(5)). The
// path of a file that was deleted ends with " (deleted)".
func Location(f *os.File) (string, error) {
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
}

// Open opens rel below dir for reference (O_PATH). It follows symbolic links that stay below dir.
func Open(dir *os.File, rel string) (*os.File, error) {
	rel, err := Clean(rel)
	if err != nil {
		return nil, err
	}
	return openBeneath(dir, rel, unix.O_PATH)
}

func openBeneath(dir *os.File, rel string, flags uint64) (*os.File, error) {
	return openat2(int(dir.Fd()), rel, flags, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS)
}

func openat2(dir int, name string, flags, resolve uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	var err error
	for range openTries {
		var fd int
		if fd, err = unix.Openat2(dir, name, &how); err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case errors.Is(err, unix.EXDEV) && resolve&unix.RESOLVE_NO_XDEV == 0,
		errors.Is(err, unix.ELOOP) && flags&unix.O_NOFOLLOW == 0:
		err = fmt.Errorf("%w (%w)", ErrEscape, err)
	case errors.Is(err, unix.ENOSYS):
		err = fmt.Errorf("openat2 needs Linux 5.6: %w", err)
	}
	return nil, &os.PathError{Op: "open", Path: name, Err: err}
}

// File opens a regular file for reading. The last depth parts of its path, including the file's name, must not be
// links; the parts before them are trusted. It never opens another type of file, such as a pipe without a writer or a
// device: the error names the type.
func File(name string, depth int) (*os.File, error) {
	name = filepath.Clean(name)
	trusted := name
	for range depth {
		trusted = filepath.Dir(trusted)
	}
	rel, err := filepath.Rel(trusted, name)
	if err != nil {
		return nil, err
	}
	dir, err := openat2(unix.AT_FDCWD, trusted, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	at, err := openat2(int(dir.Fd()), rel, unix.O_PATH|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%w but behind a symbolic link", ErrNotFile)
	}
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return nil, &os.PathError{Op: pe.Op, Path: name, Err: pe.Err}
	}
	defer at.Close()
	info, err := at.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w but a %s", ErrNotFile, TypeName(info.Mode()))
	}
	return reopen(at, name)
}

// Read opens for reading what Open has opened for reference: a regular file or a directory. It never opens another
// type, as File does not.
func Read(at *os.File) (*os.File, error) {
	info, err := at.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		return nil, fmt.Errorf("%w but a %s", ErrNotFile, TypeName(info.Mode()))
	}
	return reopen(at, at.Name())
}

// reopen opens a file for reading that was opened for reference. The caller has checked its type.
func reopen(at *os.File, name string) (*os.File, error) {
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(at.Fd())), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// TypeName is the noun for a file's type.
func TypeName(m os.FileMode) string {
	switch {
	case m.IsDir():
		return "directory"
	case m.IsRegular():
		return "file"
	case m&os.ModeSymlink != 0:
		return "symbolic link"
	case m&os.ModeNamedPipe != 0:
		return "named pipe"
	case m&os.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// MkdirAll opens rel below dir as Open does. It makes missing directories with the given mode, whatever the umask is. A
// new directory inherits setgid from its parent.
func MkdirAll(dir *os.File, rel string, mode os.FileMode) (*os.File, error) {
	rel, err := Clean(rel)
	if err != nil {
		return nil, err
	}
	return mkdirAll(func(rel string) (*os.File, error) { return Open(dir, rel) }, rel, mode)
}

// HostMkdirAll opens an absolute path of the host as Host does, and makes missing directories.
func HostMkdirAll(name string, mode os.FileMode) (*os.File, error) {
	rel, err := filepath.Rel("/", name)
	if err != nil {
		return nil, err
	}
	return mkdirAll(func(rel string) (*os.File, error) { return Host("/" + rel) }, rel, mode)
}

// walk opens a path relative to the start of the walk, so that a link on the way may lead anywhere that open allows.
type walk func(rel string) (*os.File, error)

func mkdirAll(open walk, rel string, mode os.FileMode) (*os.File, error) {
	at, err := open(rel)
	if err == nil || !errors.Is(err, unix.ENOENT) {
		return at, err
	}
	parts := strings.Split(rel, "/")
	at, err = open(".")
	for i := 0; i < len(parts) && err == nil; i++ {
		var next *os.File
		next, err = step(open, at, parts[:i+1], mode)
		at.Close()
		at = next
	}
	return at, err
}

// step opens the last of parts, which is in the directory at.
func step(open walk, at *os.File, parts []string, mode os.FileMode) (*os.File, error) {
	rel, name := path.Join(parts...), parts[len(parts)-1]
	f, err := open(rel)
	if err == nil || !errors.Is(err, unix.ENOENT) {
		return f, err
	}
	err = unix.Mkdirat(int(at.Fd()), name, uint32(mode.Perm()))
	switch {
	case errors.Is(err, unix.EEXIST):
		// Made meanwhile, or a link without a target: the open below decides.
	case err != nil:
		return nil, &os.PathError{Op: "mkdir", Path: rel, Err: err}
	default:
		if err := chmodNew(at, name, mode); err != nil {
			return nil, &os.PathError{Op: "chmod", Path: rel, Err: err}
		}
	}
	return open(rel)
}

// HostCreate creates an empty file of the host, unless a file of that name exists. Its directory must exist.
func HostCreate(name string, mode os.FileMode) error {
	dir, err := Host(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), filepath.Base(name),
		unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(mode.Perm()))
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "create", Path: name, Err: err}
	}
	return unix.Close(fd)
}

// chmodNew sets the mode of a new directory, whatever the umask is: mkdirat(2) ignores setuid, setgid and the sticky
// bit. Setgid that the directory has inherited stays.
func chmodNew(at *os.File, name string, mode os.FileMode) error {
	f, err := openat2(int(at.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_XDEV)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	return unix.Fchmod(int(f.Fd()), modeBits(mode)|st.Mode&unix.S_ISGID)
}

// modeBits returns the permissions, setuid, setgid and the sticky bit of a mode as the kernel has them.
func modeBits(mode os.FileMode) uint32 {
	bits := uint32(mode.Perm())
	for special, bit := range map[os.FileMode]uint32{
		os.ModeSetuid: unix.S_ISUID, os.ModeSetgid: unix.S_ISGID, os.ModeSticky: unix.S_ISVTX,
	} {
		if mode&special != 0 {
			bits |= bit
		}
	}
	return bits
}
