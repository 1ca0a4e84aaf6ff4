package logrotate

import (
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/base/logfile"
)

// Limits apply to the log of one container instance.
type Limits struct {
	// MaxSize is the size in bytes that makes a file due for rotation. Below 0: never.
	MaxSize int64
	// MaxFiles is the maximum number of files, the current one included. At least 2.
	MaxFiles int
}

// Bounds of the time between a write to a log and the check of its size.
const (
	minDelay = 100 * time.Millisecond
	maxDelay = time.Second
)

// checkDelay returns how long after a write to check the size of a log. rate is its last known rate in bytes per
// second, or 0.
func checkDelay(size, limit int64, rate float64) time.Duration {
	if rate <= 0 || size >= limit {
		return minDelay
	}
	// Half of the expected time, so that a doubled rate is noticed in time.
	seconds := float64(limit-size) / (2 * rate)
	if seconds >= maxDelay.Seconds() {
		return maxDelay
	}
	return max(minDelay, time.Duration(seconds*float64(time.Second)))
}

// file is one file in a container's log directory.
type file struct {
	Name string
	Size int64
}

// rotation lists the actions on the files of one log, in the order of its fields.
type rotation struct {
	// Remove are the oldest files beyond the limit, and unfinished files of an earlier process.
	Remove []string
	// Rename is the new name of the current file; "" keeps it.
	Rename string
	// Compress lists the rotated files to compress, oldest first.
	Compress []string
	// Missing: there is no current file. Interrupted: there are rotated files but no current one.
	Missing, Interrupted bool
}

// decide returns the actions on the files in the directory of the log called base. packing means that temporary files
// are in use and not left over.
func decide(files []file, base string, packing bool, l Limits, now time.Time) rotation {
	var r rotation
	var current *file
	plain, packed := map[string]int64{}, map[string]bool{}
	var stamps []string
	for _, f := range files {
		name, unfinished := strings.CutSuffix(f.Name, logfile.Temp)
		stamp, compressed, ours := logfile.Stamp(name, base)
		switch {
		case f.Name == base:
			current = &f
		case !ours:
		case unfinished:
			if !packing {
				r.Remove = append(r.Remove, f.Name)
			}
		default:
			stamps = append(stamps, stamp)
			if compressed {
				packed[stamp] = true
			} else {
				plain[stamp] = f.Size
			}
		}
	}
	slices.Sort(stamps)
	stamps = slices.Compact(stamps)
	r.Missing = current == nil
	r.Interrupted = r.Missing && len(stamps) > 0
	if current != nil && l.MaxSize >= 0 && current.Size >= max(l.MaxSize, 1) {
		last := ""
		if len(stamps) > 0 {
			last = stamps[len(stamps)-1]
		}
		stamp := logfile.Next(last, now)
		r.Rename = base + "." + stamp
		stamps = append(stamps, stamp)
		plain[stamp] = current.Size
	}
	excess := max(0, len(stamps)-(l.MaxFiles-1))
	for i, stamp := range stamps {
		_, isPlain := plain[stamp]
		name := base + "." + stamp
		switch {
		case i < excess:
			if packed[stamp] {
				r.Remove = append(r.Remove, name+logfile.Gzip)
			}
			if isPlain {
				r.Remove = append(r.Remove, name)
			}
		case isPlain && packed[stamp]: // an earlier process compressed it but did not remove it
			r.Remove = append(r.Remove, name)
		case isPlain && (i < len(stamps)-1 || plain[stamp] > 2*l.MaxSize):
			// Keep the newest uncompressed for processes that still read it, unless it grew far beyond the limit
			// without a check.
			r.Compress = append(r.Compress, name)
		}
	}
	slices.Sort(r.Remove)
	return r
}
