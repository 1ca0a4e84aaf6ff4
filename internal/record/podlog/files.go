package podlog

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/base/logfile"
	"github.com/berth-run/berth/internal/base/safepath"
)

// file is an open file of a log.
type file struct {
	f    *os.File
	info fs.FileInfo // as it was when opened; identifies the file
	*lines
	gzip   bool
	broken bool // compressed and incomplete
}

// openFile opens a file of a log at its beginning. A link in its place could show a file of the host as a log.
func openFile(path string) (*file, error) {
	f, err := safepath.File(path, logfile.Depth)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	l := &file{f: f, info: info, gzip: strings.HasSuffix(path, ".gz")}
	var src io.Reader = f
	if err == nil && l.gzip {
		src, err = gzip.NewReader(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	l.lines = newLines(src)
	return l, nil
}

func (l *file) close() error { return l.f.Close() }

// seek continues at an offset of a plain file.
func (l *file) seek(offset int64) error {
	_, err := l.f.Seek(offset, io.SeekStart)
	l.restart()
	return err
}

// truncated returns to the beginning if the file is shorter than the part that was read. Rotators empty a file if they
// cannot make the runtime reopen it.
func (l *file) truncated() (bool, error) {
	if l.gzip {
		return false, nil
	}
	info, err := l.f.Stat()
	if err != nil {
		return false, err
	}
	at, err := l.f.Seek(0, io.SeekCurrent)
	if err != nil || info.Size() >= at {
		return false, err
	}
	return true, l.seek(0)
}

// generation is one file of a log, as listed in the directory.
type generation struct {
	path string
	info fs.FileInfo
}

// generations lists the files of the log at path, oldest first. It omits a compressed file whose original still exists.
func generations(path string) ([]generation, error) {
	dir, base := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return nil, err
	}
	var rotated []string
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
	}
	for name := range names {
		suffix, ok := strings.CutPrefix(name, base+".")
		plain := strings.TrimSuffix(suffix, ".gz")
		if ok && isRotation(plain) && (plain == suffix || !names[base+"."+plain]) {
			rotated = append(rotated, suffix)
		}
	}
	slices.SortFunc(rotated, compareRotations)
	all := make([]generation, 0, len(rotated)+1)
	for _, suffix := range rotated {
		all = append(all, generation{path: path + "." + suffix})
	}
	if names[base] {
		all = append(all, generation{path: path})
	}
	for i := range all {
		all[i].info, err = os.Lstat(all[i].path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return slices.DeleteFunc(all, func(g generation) bool { return g.info == nil }), nil
}

// listAttempts is how often a log is listed again because it is being rotated or compressed.
const listAttempts = 20

// stable calls do with the files of a log until the files are the same before and after the call. The files that do
// opened by name are then the listed ones. A file that disappears meanwhile is no error. Each call of do must undo the
// previous one.
func stable(path string, do func([]generation) error) error {
	before, err := generations(path)
	for range listAttempts {
		if err != nil {
			return err
		}
		done := do(before)
		if done != nil && !errors.Is(done, fs.ErrNotExist) {
			return done
		}
		var after []generation
		after, err = generations(path)
		if err == nil && slices.EqualFunc(before, after, generation.same) {
			return done
		}
		before = after
	}
	return fmt.Errorf("read log %s: it is rotated too fast", path)
}

func (g generation) same(h generation) bool {
	return g.path == h.path && os.SameFile(g.info, h.info)
}

// isRotation reports whether a suffix is a rotated log's: the time that a kubelet writes or the number that Docker
// writes.
func isRotation(suffix string) bool {
	if _, err := strconv.ParseUint(suffix, 10, 16); err == nil {
		return true
	}
	_, err := time.Parse("20060102-150405", suffix)
	return err == nil
}

// compareRotations orders suffixes, oldest first: times increase, numbers decrease.
func compareRotations(a, b string) int {
	a, b = strings.TrimSuffix(a, ".gz"), strings.TrimSuffix(b, ".gz")
	m, errA := strconv.ParseUint(a, 10, 16)
	n, errB := strconv.ParseUint(b, 10, 16)
	if errA == nil && errB == nil {
		return cmp.Compare(n, m)
	}
	return cmp.Compare(a, b)
}

// openFirst opens the first file that can be read. It returns nil if there is none, and fs.ErrNotExist if a file has
// disappeared.
func openFirst(files []generation) (l *file, skipped, err error) {
	for _, g := range files {
		l, err := openFile(g.path)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return l, skipped, err
		}
		skipped = errors.Join(skipped, fmt.Errorf("%s: %w", g.path, err))
	}
	return nil, skipped, nil
}

// position returns the index of l among the files of a log, or -1 if it was deleted or compressed.
func position(files []generation, l *file) int {
	return slices.IndexFunc(files, func(g generation) bool { return os.SameFile(g.info, l.info) })
}

// newer returns the files of the log at path that are newer than l, which has disappeared. The names of rotated files
// have an order. Times of entries decide only about a file without such a name: a runtime may still write the end of a
// file when the next one has begun, and clocks are set back. last is the time of the last entry of l.
func (l *file) newer(path string, files []generation, last time.Time) []generation {
	base := filepath.Base(path)
	if stamp, _, ok := logfile.Stamp(l.name(), base); ok {
		at := slices.IndexFunc(files, func(g generation) bool {
			other, _, rotated := logfile.Stamp(filepath.Base(g.path), base)
			return !rotated || other > stamp
		})
		if at < 0 {
			return nil
		}
		return files[at:]
	}
	return newerThan(l.beginning(), last, path, files)
}

// name returns the name that the file has, or had when it was deleted.
func (l *file) name() string {
	path, err := safepath.Location(l.f)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(filepath.Base(path), " (deleted)")
}

// newerThan returns the files of the log at path that begin after a file whose entries have the times from first to
// last. A writer may give the last entry of a file and the first one of the next file the same time.
func newerThan(first, last time.Time, path string, files []generation) []generation {
	for i, g := range files {
		if g.path == path {
			return files[i:]
		}
		begin := beginning(g.path)
		if !last.IsZero() && (begin.After(last) || begin.Equal(last) && first.Before(last)) {
			return files[i:]
		}
	}
	return nil
}

// leadsTo reports whether a path still leads to the same file.
func leadsTo(path string, was fs.FileInfo) bool {
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(now, was)
}

// beginning returns the time of the first entry of a file, or zero if it cannot be read.
func beginning(name string) time.Time {
	l, err := openFile(name)
	if err != nil {
		return time.Time{}
	}
	defer func() { _ = l.close() }() // it is only read
	return l.beginning()
}

// beginning returns the time of the first entry of a file, wherever the file is read, or zero if it has none.
func (l *file) beginning() time.Time {
	var src io.Reader = io.NewSectionReader(l.f, 0, math.MaxInt64)
	if l.gzip {
		var err error
		if src, err = gzip.NewReader(src); err != nil {
			return time.Time{}
		}
	}
	line, err := newLines(src).next()
	if err != nil {
		return time.Time{}
	}
	e, err := Parse(line)
	if err != nil {
		return time.Time{}
	}
	return e.Time
}
