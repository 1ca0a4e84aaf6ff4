package directory

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/inotify"
)

// target is the path of the manifests, with its present kind and the watch on it.
type target struct {
	path   string
	period time.Duration
	log    *slog.Logger

	notify *inotify.Watcher
	place  place
	info   fs.FileInfo // of the directory or file at path; nil if there is none
	arrive string      // the name that must appear first if there is nothing at path
	single bool        // path led to a single manifest when it last existed
}

// place is the kind of file at the path.
type place int

const (
	nothing place = iota
	directory
	single
)

// above is the directory of the manifests.
func (t *target) above() string {
	if t.single {
		return filepath.Dir(t.path)
	}
	return t.path
}

// survey describes what is at the path. err is the error of aim.
func (t *target) survey(err error) (found, error) {
	if err != nil {
		return found{}, err
	}
	dir, err := identify(t.above())
	if errors.Is(err, fs.ErrNotExist) {
		return found{}, nil
	}
	if err != nil {
		return found{}, err
	}
	files, err := t.list()
	return found{dir: dir, files: len(files)}, err
}

// aim opens what is at the path and watches it, or its nearest existing parent. It sets the watch before reading, so
// that no change is missed. While directories change meanwhile it tries again, up to a limit; the next relist does the
// rest.
func (t *target) aim() error {
	const tries = 20
	for range tries {
		again, err := t.aimOnce()
		if !again {
			return err
		}
	}
	return nil
}

func (t *target) start() <-chan []inotify.Event {
	n, err := inotify.Start()
	if err != nil {
		t.log.Warn("cannot watch manifests, checking them once a period only", "path", t.path, "period", t.period,
			"err", err)
		return nil
	}
	t.notify = n
	return n.Events()
}

func (t *target) end() {
	if t.notify != nil {
		t.notify.Close()
	}
}

// replaced reports whether a different file is at the path since aim.
func (t *target) replaced() bool {
	info, err := os.Stat(t.path)
	if err != nil || t.info == nil {
		return t.info != nil || !errors.Is(err, fs.ErrNotExist)
	}
	return !os.SameFile(info, t.info)
}

func (t *target) aimOnce() (again bool, err error) {
	t.info, t.place = nil, nothing
	info, err := os.Stat(t.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return t.awaitArrival(), nil
	case err != nil:
		return false, err
	case !info.IsDir():
		t.place, t.info, t.single = single, info, true
		return !t.watch(filepath.Dir(t.path), inotify.Entries), nil
	}
	if !t.watch(t.path, inotify.Entries) {
		return true, nil
	}
	t.place, t.info, t.single = directory, info, false
	return false, nil
}

// awaitArrival watches the nearest existing parent. It reports whether that has changed already.
func (t *target) awaitArrival() (again bool) {
	above := t.path
	for {
		above, t.arrive = filepath.Dir(above), filepath.Base(above)
		if info, err := os.Stat(above); err == nil && info.IsDir() || above == filepath.Dir(above) {
			break
		}
	}
	if !t.watch(above, inotify.Arrival) {
		return true
	}
	_, err := os.Lstat(filepath.Join(above, t.arrive))
	return err == nil
}

// watch returns false if the directory does not exist any more.
func (t *target) watch(path string, mask uint32) bool {
	if t.notify == nil {
		return true
	}
	err := t.notify.Aim(path, mask)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.log.Warn("cannot watch manifests, checking them once a period only", "period", t.period, "err", err)
	}
	return !errors.Is(err, fs.ErrNotExist)
}

func (t *target) list() ([]string, error) {
	switch t.place {
	case single:
		return []string{t.path}, nil
	case directory:
		entries, err := os.ReadDir(t.path)
		if err != nil {
			return nil, err
		}
		var paths []string
		for _, e := range entries {
			if eligible(e.Name()) && !e.IsDir() {
				paths = append(paths, filepath.Join(t.path, e.Name()))
			}
		}
		return paths, nil
	default:
		return nil, nil
	}
}

// pathOf returns the path for a name in the watched directory, and whether that file is read.
func (t *target) pathOf(name string) (string, bool) {
	switch t.place {
	case directory:
		return filepath.Join(t.path, name), eligible(name)
	case single:
		return t.path, name == filepath.Base(t.path)
	default:
		return "", false
	}
}

// restructures reports whether something else must be watched after an event.
func (t *target) restructures(e inotify.Event) bool {
	switch {
	case e.Mask&inotify.Lost != 0:
		return true
	case t.place == nothing:
		return e.Name == t.arrive
	default:
		return t.place == single && e.Name == filepath.Base(t.path) && e.Mask&unix.IN_ISDIR != 0
	}
}

// swapped reports whether an event changed a hidden link that leads to the files of the directory, such as ..data of a
// mounted ConfigMap.
func (t *target) swapped(e inotify.Event) bool {
	if t.place != directory || e.Mask&(unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_DELETE) == 0 || e.Name == "" ||
		e.Name[0] != '.' {
		return false
	}
	info, err := os.Lstat(filepath.Join(t.path, e.Name))
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// reads reports whether the file is one that the path names now. Others are from a directory or file that was at the
// path before.
func (t *target) reads(path string) bool {
	return t.place != directory && path == t.path || t.place == directory && filepath.Dir(path) == t.path
}
