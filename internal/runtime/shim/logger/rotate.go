package logger

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/logfile"
)

// rotate renames the current file and creates another. If that fails, the log continues in its file, beyond the limit,
// and the logger retries the rotation after a second.
func (l *Log) rotate(now time.Time) {
	const pause = time.Second
	l.limits = logfile.ReadLimits(l.limitsFile)
	if err := l.replace(now); err != nil {
		l.warn(err, "cannot rotate a log, retrying")
		l.retry = now.Add(pause)
	}
}

func (l *Log) replace(now time.Time) error {
	root, rel, err := logfile.Root(l.path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing is written through it
	rotated, last, err := logfile.Rotated(root, rel)
	if err != nil {
		return err
	}
	dir, base := filepath.Split(rel)
	for len(rotated) > max(l.limits.MaxFiles, 2)-2 { // with the current and the next one there are MaxFiles
		for _, name := range rotated[0] {
			if err := root.Remove(dir + name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		rotated = rotated[1:]
	}
	name := base + "." + logfile.Next(last, now)
	if err := logfile.Rename(root, rel, name); err != nil {
		return err
	}
	if err := l.openIn(root, rel); err != nil {
		return errors.Join(err, logfile.Rename(root, dir+name, base))
	}
	return nil
}

// linesAfter returns how many lines of a stream follow a place in the log, in the same file, and the end of the log.
// The file may have been renamed since.
func (l *Log) linesAfter(at logfile.Place, stream string) (lines int, end logfile.Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refresh()
	root, rel, err := logfile.Root(l.path)
	if err != nil {
		return 0, l.at
	}
	defer func() { _ = root.Close() }() // nothing is written through it
	for _, path := range append([]string{rel}, plainFiles(root, rel)...) {
		file, err := root.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		end, err := logfile.PlaceOf(file)
		if err == nil && end.SameFile(at) {
			lines = linesIn(file, at, end, stream)
			_ = file.Close()
			break
		}
		_ = file.Close()
	}
	return lines, l.at
}

// linesIn counts the lines of a stream between two places in a file.
func linesIn(file *os.File, from, to logfile.Place, stream string) int {
	to, err := logfile.CutTorn(file, to)
	if err != nil || to.Offset <= from.Offset {
		return 0
	}
	content := make([]byte, to.Offset-from.Offset)
	n, _ := file.ReadAt(content, int64(from.Offset))
	return countLines(content[:n], stream)
}

// plainFiles returns the paths of rotated files of a log that are not compressed, newest first.
func plainFiles(root *os.Root, log string) (paths []string) {
	dir := filepath.Dir(log)
	rotated, _, _ := logfile.Rotated(root, log)
	for _, names := range slices.Backward(rotated) {
		for _, name := range names {
			if !strings.HasSuffix(name, logfile.Gzip) {
				paths = append(paths, filepath.Join(dir, name))
			}
		}
	}
	return paths
}
