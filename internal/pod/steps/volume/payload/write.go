package payload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/safepath"
)

// writer updates the files of one volume. It holds the volume's directory open, so that it never writes to something
// that is mounted there meanwhile.
type writer struct {
	dir    *os.File
	path   string
	owner  owner
	memory bool // the files must never be on a disk
	now    time.Time
	// moreStale is set by write if a version remains for a later removal.
	moreStale bool
}

// write makes files the content of the volume at path. It reports whether the content has changed.
func (w *writer) write(ctx context.Context, files Files) (changed bool, err error) {
	files, err = checked(files)
	if err != nil {
		return false, err
	}
	if err := w.open(); err != nil {
		return false, err
	}
	defer w.dir.Close()
	current, err := currentVersion(w.dir)
	if err != nil {
		return false, err
	}
	same, err := w.isVersion(current, files)
	if err != nil {
		return false, err
	}
	if !same {
		if current, err = w.replace(ctx, files); err != nil {
			return false, err
		}
	}
	if err := w.linkNames(files); err != nil {
		return !same, err
	}
	return !same, w.removeStale(ctx, current)
}

func (w *writer) open() (err error) {
	if w.dir, err = openIn(nil, w.path, unix.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err = unix.Fstatfs(int(w.dir.Fd()), &st); err == nil && w.memory && st.Type != unix.TMPFS_MAGIC {
		err = fmt.Errorf("%s is not in memory, so that nothing is written there", w.path)
	}
	if err != nil {
		w.dir.Close()
	}
	return err
}

// openIn opens a path in dir, or a path of the host if dir is nil. Below dir it follows no links: a version contains
// none.
func openIn(dir *os.File, name string, flags uint64, mode uint32) (*os.File, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC | unix.O_NOFOLLOW, Mode: uint64(mode),
		Resolve: unix.RESOLVE_NO_MAGICLINKS}
	at := unix.AT_FDCWD
	if dir != nil {
		at, how.Resolve = int(dir.Fd()), unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS|unix.RESOLVE_NO_SYMLINKS
	}
	for {
		fd, err := unix.Openat2(at, name, &how)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		default:
			return os.NewFile(uintptr(fd), name), nil
		}
	}
}

// currentVersion is the name that ..data links to, or "" if there is none.
func currentVersion(dir *os.File) (string, error) {
	target, err := readLink(dir, dataLink)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if _, ok := versionTime(target); !ok {
		return "", nil // not made by agent or kubelet: it is replaced
	}
	return target, nil
}

func readLink(dir *os.File, name string) (string, error) {
	b := make([]byte, maxPath)
	n, err := unix.Readlinkat(int(dir.Fd()), name, b)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: name, Err: err}
	}
	return string(b[:n]), nil
}

// isVersion reports whether a version has exactly these files.
func (w *writer) isVersion(name string, files Files) (bool, error) {
	if name == "" {
		return false, nil
	}
	dir, err := openIn(w.dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer dir.Close()
	want := slices.Concat(directories(files), slices.Collect(maps.Keys(files)))
	slices.Sort(want)
	if got, err := list(dir, ""); err != nil || !slices.Equal(got, want) {
		return false, err
	}
	for p, f := range files {
		if same, err := w.isFile(dir, p, f); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// list returns all paths below a directory, sorted.
func list(dir *os.File, prefix string) ([]string, error) {
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, e := range entries {
		p := path.Join(prefix, e.Name())
		all = append(all, p)
		if !e.IsDir() {
			continue
		}
		sub, err := openIn(dir, e.Name(), unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return nil, err
		}
		below, err := list(sub, p)
		sub.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, below...)
	}
	slices.Sort(all)
	return all, nil
}

func (w *writer) isFile(dir *os.File, p string, want File) (bool, error) {
	f, err := openIn(dir, p, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, err
	}
	if st.Mode != unix.S_IFREG|w.owner.fileMode(want) || int(st.Uid) != userOf(want) || int(st.Gid) != w.owner.gid() ||
		st.Size != int64(len(want.Data)) {
		return false, nil
	}
	data := make([]byte, len(want.Data))
	if _, err := io.ReadFull(f, data); err != nil {
		return false, err
	}
	return bytes.Equal(data, want.Data), nil
}

func userOf(f File) int {
	if f.User == nil {
		return 0
	}
	return int(*f.User)
}

// replace makes a new version and links ..data to it.
func (w *writer) replace(ctx context.Context, files Files) (name string, err error) {
	name, err = w.newVersion()
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, safepath.RemoveAll(context.WithoutCancel(ctx), filepath.Join(w.path, name)))
		}
	}()
	if err := w.fill(name, files); err != nil {
		return name, err
	}
	if err := w.link(name, newLink, 0); err != nil {
		return name, err
	}
	if err := unix.Renameat(int(w.dir.Fd()), newLink, int(w.dir.Fd()), dataLink); err != nil {
		return name, &os.LinkError{Op: "rename", Old: newLink, New: dataLink, Err: err}
	}
	return name, nil
}

func (w *writer) newVersion() (string, error) {
	for others := 0; ; others++ {
		name := versionName(w.now, others)
		err := unix.Mkdirat(int(w.dir.Fd()), name, 0o700)
		if err == nil {
			return name, nil
		}
		if !errors.Is(err, unix.EEXIST) {
			return "", &os.PathError{Op: "mkdir", Path: name, Err: err}
		}
	}
}

// fill writes a version. Its directory is closed to others until it is complete.
func (w *writer) fill(name string, files Files) error {
	dir, err := openIn(w.dir, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, d := range deepest(directories(files)) {
		sub, err := safepath.MkdirAll(dir, d, 0o755)
		if err != nil {
			return err
		}
		sub.Close()
	}
	for _, p := range slices.Sorted(maps.Keys(files)) {
		if err := w.create(dir, p, files[p]); err != nil {
			return err
		}
	}
	for _, d := range append(directories(files), ".") {
		if err := w.own(dir, d); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) create(dir *os.File, p string, file File) error {
	f, err := openIn(dir, p, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(file.Data)
	if err == nil {
		err = f.Chown(userOf(file), w.owner.gid())
	}
	if err == nil {
		err = unix.Fchmod(int(f.Fd()), w.owner.fileMode(file))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write file %q: %w", p, err)
	}
	return nil
}

// own sets the group and mode of a directory in a version.
func (w *writer) own(dir *os.File, p string) error {
	d, err := openIn(dir, p, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Chown(0, w.owner.gid()); err != nil {
		return err
	}
	if err := unix.Fchmod(int(d.Fd()), w.owner.dirMode()); err != nil {
		return &os.PathError{Op: "chmod", Path: p, Err: err}
	}
	return nil
}

// link makes a symbolic link, or replaces an existing one.
func (w *writer) link(target, name string, user int) error {
	err := unix.Symlinkat(target, int(w.dir.Fd()), name)
	if errors.Is(err, unix.EEXIST) {
		if err := unix.Unlinkat(int(w.dir.Fd()), name, 0); err != nil {
			return &os.PathError{Op: "unlink", Path: name, Err: err}
		}
		err = unix.Symlinkat(target, int(w.dir.Fd()), name)
	}
	if err != nil {
		return &os.LinkError{Op: "symlink", Old: target, New: name, Err: err}
	}
	if err := unix.Fchownat(int(w.dir.Fd()), name, user, w.owner.gid(), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "chown", Path: name, Err: err}
	}
	return nil
}

// linkNames makes the links that containers open, and removes links to names that are gone. A directory of that name
// stays: another volume is mounted on it.
func (w *writer) linkNames(files Files) error {
	names := topNames(files)
	for name, f := range names {
		target, err := readLink(w.dir, name)
		switch {
		case errors.Is(err, unix.EINVAL): // a directory
		case err != nil && !errors.Is(err, unix.ENOENT):
			return err
		case err != nil || target != path.Join(dataLink, name):
			if err := w.link(path.Join(dataLink, name), name, userOf(f)); err != nil {
				return err
			}
		}
	}
	entries, err := w.names()
	if err != nil {
		return err
	}
	for _, name := range entries {
		if _, wanted := names[name]; wanted {
			continue
		}
		if target, err := readLink(w.dir, name); err != nil || target != path.Join(dataLink, name) {
			continue // not a link of this package
		}
		if err := unix.Unlinkat(int(w.dir.Fd()), name, 0); err != nil {
			return &os.PathError{Op: "unlink", Path: name, Err: err}
		}
	}
	return nil
}

// names lists the volume's directory as it is now.
func (w *writer) names() ([]string, error) {
	if _, err := w.dir.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return w.dir.Readdirnames(-1)
}

// removeStale removes the versions and links that earlier writes left.
func (w *writer) removeStale(ctx context.Context, current string) error {
	names, err := w.names()
	if err != nil {
		return err
	}
	gone := stale(names, current, w.now)
	for _, name := range gone {
		if err := safepath.RemoveAll(ctx, "/proc/self/fd/"+strconv.Itoa(int(w.dir.Fd()))+"/"+name); err != nil {
			return err
		}
	}
	w.moreStale = slices.ContainsFunc(names, func(name string) bool {
		_, version := versionTime(name)
		return version && name != current && !slices.Contains(gone, name)
	})
	return nil
}

// complete reports whether the volume at path has a version of its files.
func (w writer) complete() bool {
	if w.open() != nil {
		return false
	}
	defer w.dir.Close()
	current, err := currentVersion(w.dir)
	if err != nil || current == "" {
		return false
	}
	version, err := openIn(w.dir, current, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return false
	}
	version.Close()
	return true
}
