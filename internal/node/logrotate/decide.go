package logrotate

import (
	"slices"
	"strings"
	"time"
)

// Limits of the log of one container instance.
type Limits struct {
	// MaxSize is when a file is rotated, in bytes; less than 0: never.
	MaxSize int64
	// MaxFiles is how many files there are at most, at least 2: the one that is
	// written to and the rotated ones.
	MaxFiles int
}

// Between two looks at a log that is written to.
const (
	minDelay = 100 * time.Millisecond
	maxDelay = time.Second
)

// lookAfter is how long after a write the size of a log is looked at, if it was
// written to at rate bytes per second last; 0 if that is not known.
func lookAfter(size, limit int64, rate float64) time.Duration {
	if rate <= 0 || size >= limit {
		return minDelay
	}
	// Half the way to the limit: a rate that doubles is seen in time.
	seconds := float64(limit-size) / (2 * rate)
	if seconds >= maxDelay.Seconds() {
		return maxDelay
	}
	return max(minDelay, time.Duration(seconds*float64(time.Second)))
}

// file is one in a container's log directory.
type file struct {
	Name string
	Size int64
}

// rotation is what is to be done with the files of one log, in this order.
type rotation struct {
	// Remove are the oldest files of too many, and what an earlier process left half done.
	Remove []string
	// Rename is what the current file is called from now on; "": it stays.
	Rename string
	// Compress lists the rotated files that are not yet, oldest first.
	Compress []string
	// Missing says that there is no current file, Interrupted that there are
	// rotated ones beside that.
	Missing, Interrupted bool
}

// How the names of rotated files end. The first is the kubelet's, the second is
// for logs that are rotated more than once a second; it sorts after the first.
const (
	nameSeconds = "20060102-150405"
	nameMillis  = "20060102-150405.000"

	suffixGzip = ".gz"
	suffixTemp = ".tmp"
)

// decide says what to do with the files in the directory of the log called base.
// packing says that the temporary files are not left over but in use.
func decide(files []file, base string, packing bool, l Limits, now time.Time) rotation {
	var r rotation
	var current *file
	plain, packed := map[string]int64{}, map[string]bool{}
	var stamps []string
	for _, f := range files {
		suffix, ours := strings.CutPrefix(f.Name, base+".")
		stamp := strings.TrimSuffix(suffix, suffixGzip)
		switch {
		case f.Name == base:
			current = &f
		case !ours:
		case strings.HasSuffix(suffix, suffixTemp) &&
			isStamp(strings.TrimSuffix(strings.TrimSuffix(suffix, suffixTemp), suffixGzip)):
			if !packing {
				r.Remove = append(r.Remove, f.Name)
			}
		case !isStamp(stamp):
		default:
			stamps = append(stamps, stamp)
			if stamp == suffix {
				plain[stamp] = f.Size
			} else {
				packed[stamp] = true
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
		stamp := nextStamp(last, now)
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
				r.Remove = append(r.Remove, name+suffixGzip)
			}
			if isPlain {
				r.Remove = append(r.Remove, name)
			}
		case isPlain && packed[stamp]: // it was to be removed when it was compressed
			r.Remove = append(r.Remove, name)
		case isPlain && (i < len(stamps)-1 || plain[stamp] > 2*l.MaxSize):
			// The newest stays as it is for those who still read it, unless it
			// grew while nobody looked.
			r.Compress = append(r.Compress, name)
		}
	}
	slices.Sort(r.Remove)
	return r
}

// nextStamp is a rotation time later than last, which is "" for none. Clocks go
// back, and a log may be rotated several times a second.
func nextStamp(last string, now time.Time) string {
	now = now.UTC()
	for _, layout := range []string{nameSeconds, nameMillis} {
		if stamp := now.Format(layout); stamp > last {
			return stamp
		}
	}
	// A layout without a fraction parses one all the same.
	t, _ := time.Parse(nameSeconds, last)
	return t.Add(time.Millisecond).Format(nameMillis)
}

func isStamp(s string) bool {
	_, err := time.Parse(nameSeconds, s)
	return err == nil
}
