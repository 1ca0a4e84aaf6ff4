package ownership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/guard"
)

// maxDepth bounds how deep directories are nested, because each level of the walk holds a file open.
const maxDepth = 2048

// Walk is one walk over a volume. The zero value is ready to use, once.
type Walk struct {
	want  Want
	slots chan struct{} // one for each goroutine beside the first
	wg    guard.Group

	seen   atomic.Int64
	mu     sync.Mutex
	failed int64
	first  error
}

// Seen is how many files the walk has visited so far. It may be called while Run runs.
func (w *Walk) Seen() int64 { return w.seen.Load() }

// Run gives root and everything below it to the group. The root comes last, so that OnRootMismatch does not take an
// interrupted walk for a finished one. A file that cannot be changed does not stop the walk. The error is a *Partial
// then, and the pod may run, as under the kubelet.
func (w *Walk) Run(ctx context.Context, root *os.File, want Want) error {
	w.want = want
	w.slots = make(chan struct{}, 2*runtime.GOMAXPROCS(0))
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return &os.PathError{Op: "stat", Path: root.Name(), Err: err}
	}
	if want.skips(st.Mode, st.Gid) {
		return nil
	}
	if st.Mode&typeMask == typeDir {
		dir, err := openDir(int(root.Fd()), ".", root.Name())
		if err != nil {
			return err
		}
		w.dir(ctx, dir, 0)
		w.wg.Wait()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.change(int(root.Fd()), &st); err != nil {
		return fmt.Errorf("give %s to group %d: %w", root.Name(), want.Group, err)
	}
	if w.failed > 0 {
		return &Partial{Failed: w.failed, Seen: w.Seen(), First: w.first}
	}
	return nil
}

// Partial is the error for a walk that could not give some files to the group.
type Partial struct {
	Failed, Seen int64
	First        error
}

func (e *Partial) Error() string {
	return fmt.Sprintf("%d of %d files keep their group: %v", e.Failed, e.Seen, e.First)
}

func (e *Partial) Unwrap() error { return e.First }

// dir walks over the entries of a directory and closes it.
func (w *Walk) dir(ctx context.Context, dir *os.File, depth int) {
	defer dir.Close()
	for ctx.Err() == nil {
		names, err := dir.Readdirnames(512)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			w.fail(err)
			return
		}
		for _, name := range names {
			if ctx.Err() != nil {
				return
			}
			w.entry(ctx, dir, name, depth)
		}
	}
}

func (w *Walk) entry(ctx context.Context, dir *os.File, name string, depth int) {
	var st unix.Stat_t
	at := int(dir.Fd())
	err := unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return
	}
	if err != nil {
		w.fail(&os.PathError{Op: "stat", Path: path.Join(dir.Name(), name), Err: err})
		return
	}
	w.seen.Add(1)
	if st.Mode&typeMask == typeDir && !w.descend(ctx, dir, name, depth) {
		return
	}
	if w.want.fits(st.Mode, st.Gid) {
		return
	}
	if err := w.changeAt(at, name); err != nil && !errors.Is(err, unix.ENOENT) {
		w.fail(&os.PathError{Op: "chgrp", Path: path.Join(dir.Name(), name), Err: err})
	}
}

// descend walks into a directory, in a new goroutine while there is a free slot. It returns false for a mount point,
// which does not belong to the volume.
func (w *Walk) descend(ctx context.Context, dir *os.File, name string, depth int) bool {
	full := path.Join(dir.Name(), name)
	if depth == maxDepth {
		w.fail(fmt.Errorf("%s is more than %d directories deep", full, maxDepth))
		return true
	}
	sub, err := openDir(int(dir.Fd()), name, full)
	switch {
	case errors.Is(err, unix.EXDEV):
		return false
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		return true // a process in the volume has replaced it meanwhile
	case err != nil:
		w.fail(err)
		return true
	}
	select {
	case w.slots <- struct{}{}:
		w.wg.Go(func() {
			defer func() { <-w.slots }()
			w.dir(ctx, sub, depth+1)
		})
	default:
		w.dir(ctx, sub, depth+1)
	}
	return true
}

// changeAt changes the file that a name refers to now. It uses one descriptor, so that mode and group are of the same
// file.
func (w *Walk) changeAt(dir int, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	return w.change(fd, &st)
}

func (w *Walk) change(fd int, st *unix.Stat_t) error {
	if int64(st.Gid) != w.want.Group {
		if err := unix.Fchownat(fd, "", -1, int(w.want.Group), unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	if st.Mode&typeMask == typeLink {
		return nil
	}
	// This is needed even if the bits were set: chown(2) removes setuid and setgid.
	return chmod(fd, st.Mode&allBits|w.want.bits(st.Mode))
}

// chmod changes the mode of a file opened with O_PATH.
func chmod(fd int, mode uint32) error {
	err := unix.Fchmodat(fd, "", mode, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) { // before Linux 6.6
		err = unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode)
	}
	return err
}

func (w *Walk) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed++; w.first == nil {
		w.first = err
	}
}

// openDir opens a directory. It refuses links and, except for ".", mount points.
func openDir(at int, name, full string) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	fd, err := unix.Openat2(at, name, &how)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: full, Err: err}
	}
	return os.NewFile(uintptr(fd), full), nil
}
