package logrotate

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/logfile"
	"github.com/berth-run/berth/internal/base/safepath"
)

// ownRotation is how many checks find no log beside rotated ones until the runtime must reopen it. They are 100, 200
// and 400 ms apart.
const ownRotation = 3

// job rotates the files of one log.
type job struct {
	r        *Rotator
	path, id string
	running  bool
	reopen   bool
	packing  bool
	watched  bool   // a watch of the log has begun already
	inode    uint64 // of the log at the check before, 0 if there was none
	failures int    // of the checks before
	all      bool   // check the rotated files too, whatever the size of the current one is
}

// do watches the log of a running container, reads its size, and rotates it if it is due. The watch comes first, so
// that no write between the two is missed.
func (j job) do(ctx context.Context) (res result) {
	if j.running && !j.watched {
		wd, err := j.r.watch.add(j.path)
		res.watched, res.wd = err == nil, wd
		res.unwatchable = err != nil && !errors.Is(err, fs.ErrNotExist)
	}
	info, err := os.Lstat(j.path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		res.elsewhere = true
		return res
	case err == nil:
		res.sized, res.size = true, info.Size()
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			res.inode = stat.Ino
		}
		replaced := j.inode != 0 && res.inode != j.inode // the runtime has rotated the log itself
		if !j.all && !j.reopen && !replaced && res.size < j.r.opts.Limits.MaxSize {
			return res
		}
	case !errors.Is(err, fs.ErrNotExist):
		res.err = fmt.Errorf("read the size of the log: %w", err)
		return res
	case !j.running && !j.all:
		return res
	}
	done := j.rotate(ctx)
	res.rotated, res.compress, res.reopen, res.err = true, done.compress, done.reopen, done.err
	return res
}

// rotate carries out decide's result, except for the compression, which takes longer.
func (j job) rotate(ctx context.Context) result {
	var files []file
	root, rel, err := logfile.Root(j.path)
	if err == nil {
		defer func() { _ = root.Close() }() // nothing is written through it
		files, err = list(root, filepath.Dir(rel))
	}
	if errors.Is(err, fs.ErrNotExist) && !j.running {
		return result{} // the log was removed with its pod
	}
	if err != nil {
		return result{err: err}
	}
	d := decide(files, filepath.Base(rel), j.packing, j.r.opts.Limits, j.r.opts.Now())
	for _, name := range d.Remove {
		if err := root.Remove(filepath.Join(filepath.Dir(rel), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return result{err: fmt.Errorf("remove rotated log: %w", err)}
		}
	}
	res := result{}
	switch {
	case j.running && d.Interrupted && !j.reopen && j.failures < ownRotation:
		// The runtime itself may be between renaming the log and opening the next one.
		return result{err: fmt.Errorf("rotate log: %w", fs.ErrNotExist)}
	case j.running && (j.reopen || d.Interrupted):
		// An earlier rotation was interrupted after the renaming. The next check decides about a new rotation.
		if err := j.open(ctx); err != nil {
			return result{reopen: true, err: err}
		}
	case j.running && d.Missing:
		return result{err: fmt.Errorf("rotate log: %w", fs.ErrNotExist)}
	case d.Rename != "" && j.running:
		if res.reopen, err = j.replace(ctx, root, rel, d.Rename); err != nil {
			return result{reopen: res.reopen, err: err}
		}
	case d.Rename != "":
		if err := setAside(root, rel, d.Rename); err != nil {
			return result{err: err}
		}
	}
	for _, name := range d.Compress {
		res.compress = append(res.compress, filepath.Join(filepath.Dir(j.path), name))
	}
	return res
}

// list lists the regular files of a directory. It ignores files that vanish meanwhile.
func list(root *os.Root, dir string) ([]file, error) {
	entries, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	files := make([]file, 0, len(entries))
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list logs: %w", err)
		}
		if info.Mode().IsRegular() {
			files = append(files, file{e.Name(), info.Size()})
		}
	}
	return files, nil
}

// replace renames the log of a running container and lets the runtime open a new file. If that fails, it restores the
// name, so that the lines stay where readers expect them. reopen is true if it could not: then the runtime must reopen
// the log later.
func (j job) replace(ctx context.Context, root *os.Root, log, name string) (reopen bool, err error) {
	if err := logfile.Rename(root, log, name); err != nil {
		return false, fmt.Errorf("rename log: %w", err)
	}
	if err = j.open(ctx); err == nil {
		return false, nil
	}
	back := logfile.Rename(root, filepath.Join(filepath.Dir(log), name), filepath.Base(log))
	if back == nil {
		return false, err
	}
	if errors.Is(back, fs.ErrExist) {
		return true, err // the runtime has created the new file
	}
	return true, errors.Join(err, fmt.Errorf("rename log back: %w", back))
}

func (j job) open(ctx context.Context) error {
	_, err := j.r.opts.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: j.id})
	if err != nil {
		return fmt.Errorf("reopen log: %w", err)
	}
	return nil
}

// setAside renames the log of an ended container and creates an empty one in its place, because readers expect it.
func setAside(root *os.Root, log, name string) error {
	info, err := root.Lstat(log)
	if err != nil {
		return fmt.Errorf("rename log: %w", err)
	}
	if err := logfile.Rename(root, log, name); err != nil {
		return fmt.Errorf("rename log: %w", err)
	}
	f, err := root.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create empty log: %w", err)
	}
	return f.Close()
}

// pack compresses files one after another once a slot is free.
func (r *Rotator) pack(ctx context.Context, paths []string) error {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.slots }()
	var errs []error
	for _, path := range paths {
		if err := compress(ctx, path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("compress log: %w", err))
		}
	}
	return errors.Join(errs...)
}

// errWritten: a file is not compressed while a process may write to it.
var errWritten = errors.New("a process still has it open for writing")

// compress replaces a rotated file by a compressed one. It removes the original only when the compressed file is
// complete.
func compress(ctx context.Context, path string) (err error) {
	src, err := safepath.File(path, logfile.Depth)
	if err != nil {
		return err
	}
	defer src.Close()
	// On a file system where this is not known, it must suffice that the file is not the newest.
	if logfile.Written(src) {
		return fmt.Errorf("%s: %w", path, errWritten)
	}
	info, err := src.Stat()
	if err != nil {
		return err
	}
	root, rel, err := logfile.Root(path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // what is written through it is closed before
	tmp := rel + logfile.Gzip + logfile.Temp
	defer func() {
		if err != nil {
			err = errors.Join(err, safepath.IgnoreMissing(root.Remove(tmp)))
		}
	}()
	if err := writeGzip(ctx, root, tmp, src, info); err != nil {
		return err
	}
	if _, err := root.Lstat(rel); err != nil {
		return err // removed meanwhile: do not bring it back
	}
	if err := root.Rename(tmp, rel+logfile.Gzip); err != nil {
		return err
	}
	return safepath.IgnoreMissing(root.Remove(rel))
}

func writeGzip(ctx context.Context, root *os.Root, path string, src io.Reader, like fs.FileInfo) (err error) {
	if err := safepath.IgnoreMissing(root.Remove(path)); err != nil {
		return err
	}
	dst, err := root.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, like.Mode().Perm())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	// Speed matters more than a few percent of size: compression must be faster than containers write.
	z, err := gzip.NewWriterLevel(dst, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := io.Copy(z, untilDone{ctx, src}); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	// Readers skip files by their modification time.
	return root.Chtimes(path, like.ModTime(), like.ModTime())
}

// untilDone is a reader that fails when its context ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
