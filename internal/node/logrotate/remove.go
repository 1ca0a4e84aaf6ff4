package logrotate

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/berth-run/berth/internal/base/logfile"
)

// Space is an amount of disk space.
type Space struct{ Bytes, Files int64 }

// packed is a compressed log.
type packed struct {
	path, stamp string
	bytes       int64 // in whole blocks
}

// RemoveOldest removes compressed logs below dir, the directory of all pods' logs, oldest first. It stops when they
// have freed at least need, and returns how much that was.
func RemoveOldest(dir string, need Space) (freed Space, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return freed, fmt.Errorf("find compressed logs: %w", err)
	}
	defer func() { _ = root.Close() }() // it was opened for reading only
	all, err := findPacked(root)
	if err != nil {
		return freed, fmt.Errorf("find compressed logs: %w", err)
	}
	var errs []error
	for _, l := range oldest(all, need) {
		if err := root.Remove(l.path); err == nil {
			freed.Bytes, freed.Files = freed.Bytes+l.bytes, freed.Files+1
		} else if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove compressed log: %w", err))
		}
	}
	return freed, errors.Join(errs...)
}

// findPacked lists the compressed logs POD/CONTAINER/N.log.STAMP.gz.
func findPacked(root *os.Root) (all []packed, err error) {
	paths, err := fs.Glob(root.FS(), "*/*/*.log.*"+logfile.Gzip)
	for _, p := range paths {
		stamp := stampOf(path.Base(p))
		info, err := root.Lstat(p)
		if err != nil || stamp == "" || !info.Mode().IsRegular() {
			continue // it is gone, or it is not a log
		}
		one := packed{path: p, stamp: stamp, bytes: info.Size()}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			one.bytes = st.Blocks * 512
		}
		all = append(all, one)
	}
	return all, err
}

// stampOf returns the rotation time in the name of a compressed log, or "".
func stampOf(name string) string {
	_, suffix, _ := strings.Cut(name, ".log.")
	stamp, packed := strings.CutSuffix(suffix, logfile.Gzip)
	if !packed || !logfile.Valid(stamp) {
		return ""
	}
	return stamp
}

// oldest returns the fewest logs, oldest first, that free at least need. If all together free less, it returns all.
func oldest(all []packed, need Space) []packed {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b packed) int {
		return cmp.Or(strings.Compare(a.stamp, b.stamp), strings.Compare(a.path, b.path))
	})
	var freed Space
	for i, l := range all {
		if freed.Bytes >= need.Bytes && freed.Files >= need.Files {
			return all[:i]
		}
		freed.Bytes, freed.Files = freed.Bytes+l.bytes, freed.Files+1
	}
	return all
}
