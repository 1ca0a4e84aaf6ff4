package logfile

import (
	"strings"
	"time"
)

// Layouts of the time in a name. seconds is the kubelet's. millis is for logs that are rotated more than once a second;
// it sorts after seconds.
const (
	seconds = "20060102-150405"
	millis  = "20060102-150405.000"
)

// Suffixes after the time: a compressed file has Gzip, a file that is being written has Temp too.
const (
	Gzip = ".gz"
	Temp = ".tmp"
)

// Next returns a rotation time later than last ("" for none), although clocks go back and a log may be rotated several
// times a second.
func Next(last string, now time.Time) string {
	now = now.UTC()
	for _, layout := range []string{seconds, millis} {
		if stamp := now.Format(layout); stamp > last {
			return stamp
		}
	}
	// time.Parse accepts a fraction of a second even if the layout has none.
	t, _ := time.Parse(seconds, last)
	return t.Add(time.Millisecond).Format(millis)
}

// Valid reports whether s is a rotation time.
func Valid(s string) bool {
	_, err := time.Parse(seconds, s)
	return err == nil
}

// Stamp returns the rotation time in the name of a rotated file of the log called base, and whether the file is
// compressed. ok is false for other names.
func Stamp(name, base string) (stamp string, packed, ok bool) {
	suffix, ours := strings.CutPrefix(name, base+".")
	stamp, packed = strings.CutSuffix(suffix, Gzip)
	return stamp, packed, ours && Valid(stamp)
}
