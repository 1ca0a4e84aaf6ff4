package diskusage

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/safepath"
)

// maxDepth bounds how deep directories are measured, because each level holds a file open.
const maxDepth = 2048

// ErrTooDeep is the error for a tree with more than maxDepth levels of directories.
var ErrTooDeep = fmt.Errorf("more than %d levels of directories", maxDepth)

// Usage is the disk usage of a tree.
type Usage struct {
	Bytes  int64 // in whole blocks
	Inodes int64 // without the tree's root
}

// Measure returns the disk usage of a directory's tree. Like du(1), it counts blocks, and a file with several names
// once. It follows no links and enters no mounts, even if a pod changes the tree meanwhile.
func Measure(ctx context.Context, path string) (Usage, error) {
	root, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0) // it never waits for the writer of a FIFO
	if err != nil {
		return Usage{}, err
	}
	m := measurement{linked: map[uint64]bool{}}
	err = m.dir(ctx, root, 0)
	return m.Usage, err
}

type measurement struct {
	Usage
	linked map[uint64]bool // counted inodes with several names
}

// dir adds the entries of a directory and closes it.
func (m *measurement) dir(ctx context.Context, dir *os.File, depth int) error {
	defer dir.Close()
	if depth > maxDepth {
		return ErrTooDeep
	}
	return safepath.Each(ctx, dir, func(name string) error { return m.entry(ctx, dir, name, depth) })
}

func (m *measurement) entry(ctx context.Context, dir *os.File, name string, depth int) error {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil // removed meanwhile
	}
	if err != nil {
		return &os.PathError{Op: "stat", Path: dir.Name() + "/" + name, Err: err}
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if !isDir && st.Nlink > 1 {
		if m.linked[st.Ino] {
			return nil
		}
		m.linked[st.Ino] = true
	}
	if !isDir {
		m.Inodes++
		m.Bytes += st.Blocks * 512
		return nil
	}
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	fd, err := unix.Openat2(int(dir.Fd()), name, &how)
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP),
		errors.Is(err, unix.ENOTDIR):
		return nil // another file system, or replaced meanwhile
	case err != nil:
		return &os.PathError{Op: "open", Path: dir.Name() + "/" + name, Err: err}
	}
	m.Inodes++
	m.Bytes += st.Blocks * 512
	return m.dir(ctx, os.NewFile(uintptr(fd), dir.Name()+"/"+name), depth+1)
}
