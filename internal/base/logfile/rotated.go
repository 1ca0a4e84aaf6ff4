package logfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Rotated returns the names of rotated files of a log, oldest first. Files of the same rotation are together. last is
// the time of the last rotation.
func Rotated(root *os.Root, log string) (names [][]string, last string, err error) {
	entries, err := fs.ReadDir(root.FS(), filepath.Dir(log))
	if err != nil {
		return nil, "", err
	}
	byTime := map[string][]string{}
	var stamps []string
	for _, entry := range entries {
		stamp, _, ok := Stamp(entry.Name(), filepath.Base(log))
		if !ok {
			continue
		}
		if byTime[stamp] == nil {
			stamps = append(stamps, stamp)
		}
		byTime[stamp] = append(byTime[stamp], entry.Name())
	}
	slices.Sort(stamps)
	for _, stamp := range stamps {
		names, last = append(names, byTime[stamp]), stamp
	}
	return names, last, nil
}
