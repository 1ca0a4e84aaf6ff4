package safepath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// RemoveAll removes a file, or a directory with its content. It follows no link and enters no mount. A mount point
// below name is an error; everything beside it is removed. It returns nil if nothing exists, and so also if another
// process removes the same meanwhile.
//
// No container may be able to write to the parent directory of name.
//
// Four files are open however deep the tree is: a directory that is not empty is moved up next to its parent before it
// is emptied.
func RemoveAll(ctx context.Context, name string) error {
	parent, err := os.Open(filepath.Dir(name))
	if err != nil {
		return IgnoreMissing(err)
	}
	defer parent.Close()
	return wrap("remove", name, removeEntry(ctx, parent, filepath.Base(name)))
}

// RemoveEntry removes an entry of an open directory as RemoveAll does.
func RemoveEntry(ctx context.Context, dir *os.File, name string) error {
	return wrap("remove", name, removeEntry(ctx, dir, name))
}

func removeEntry(ctx context.Context, parent *os.File, base string) error {
	err := unlink(parent, base)
	if !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	top, err := OpenDir(parent, base)
	if err != nil {
		return IgnoreMissing(err)
	}
	defer top.Close()
	r := removal{top: top}
	if err := r.run(ctx); err != nil {
		return err
	}
	return unlink(parent, base)
}

// removal empties one directory.
type removal struct {
	top    *os.File
	lifted int
}

func (r *removal) run(ctx context.Context) error {
	for {
		progress, lifted, failed := false, r.lifted, failures{}
		err := Each(ctx, r.top, func(name string) error {
			err := r.entry(ctx, name)
			failed.add(err)
			progress = progress || err == nil
			return nil
		})
		if err != nil {
			return err
		}
		if !progress && r.lifted == lifted {
			return failed.err()
		}
	}
}

// entry removes one entry of the top directory, or moves its content up.
func (r *removal) entry(ctx context.Context, name string) error {
	err := unlink(r.top, name)
	if !errors.Is(err, unix.ENOTEMPTY) {
		return wrap("remove", name, err)
	}
	dir, err := OpenDir(r.top, name)
	if err != nil {
		return wrap("open", name, IgnoreMissing(err))
	}
	defer dir.Close()
	var failed failures
	err = Each(ctx, dir, func(child string) error {
		err := unlink(dir, child)
		if errors.Is(err, unix.ENOTEMPTY) {
			err = r.lift(dir, child)
		}
		failed.add(wrap("remove", filepath.Join(name, child), err))
		return nil
	})
	if err := errors.Join(err, failed.err()); err != nil {
		return err
	}
	if err := unlink(r.top, name); err != nil && !errors.Is(err, unix.ENOTEMPTY) { // more than one round of names
		return wrap("remove", name, err)
	}
	return nil
}

// failures keeps the first few errors, because there may be one for every file.
type failures struct {
	first []error
	count int
}

func (f *failures) add(err error) {
	if err == nil {
		return
	}
	if f.count++; len(f.first) < 3 {
		f.first = append(f.first, err)
	}
}

func (f *failures) err() error {
	err := errors.Join(f.first...)
	if more := f.count - len(f.first); more > 0 {
		err = fmt.Errorf("%w (and %d more)", err, more)
	}
	return err
}

// lift moves a directory up under an unused name.
func (r *removal) lift(dir *os.File, child string) error {
	for {
		r.lifted++
		err := unix.Renameat2(int(dir.Fd()), child, int(r.top.Fd()), ".removed-"+strconv.Itoa(r.lifted),
			unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return IgnoreMissing(err)
		}
	}
}

// Each calls f with the names in a directory as it is now, until f or the context fails. It may miss names that appear
// meanwhile. A directory that was removed while it is open has no names: the kernel answers ENOENT (getdents(2)).
func Each(ctx context.Context, dir *os.File, f func(name string) error) error {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for {
		names, err := dir.Readdirnames(512)
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f(name); err != nil {
				return err
			}
		}
	}
}

// unlink removes a file or an empty directory. ENOTEMPTY means a directory with content.
func unlink(dir *os.File, name string) error {
	err := unix.Unlinkat(int(dir.Fd()), name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EEXIST): // some file systems return this instead
		return unix.ENOTEMPTY
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("something is mounted on it: %w", err)
	}
	return err
}

// OpenDir opens a directory entry that is neither a link nor a mount point.
func OpenDir(dir *os.File, name string) (*os.File, error) {
	f, err := openat2(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_XDEV)
	if errors.Is(err, unix.EXDEV) {
		return nil, fmt.Errorf("something is mounted on it: %w", unix.EBUSY)
	}
	return f, err
}

func wrap(verb, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", verb, name, err)
}
