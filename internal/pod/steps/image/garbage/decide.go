package garbage

import (
	"cmp"
	"slices"
	"time"

	"github.com/distribution/reference"
)

// Image is an image of the node with what the ledger knows of it.
type Image struct {
	ID string
	// Tags and Digests are its full names.
	Tags, Digests []string
	Size          int64 // bytes, as the runtime counts it
	Pinned        bool  // in the runtime: not to be removed
	Imported      bool  // by hand
	Used          bool  // now
	FirstSeen     time.Time
	LastUsed      time.Time // zero: never
}

// Thresholds say when images are removed.
type Thresholds struct {
	// High is at how many percent of the disk images are removed, Low down to how
	// many. High 100: never.
	High, Low int
	// MinAge is for how long an image is known before it may be removed for the
	// disk's sake.
	MinAge time.Duration
	// MaxAge is for how long an image may be unused; 0: for ever.
	MaxAge time.Duration
}

// Disk is the file system that holds the images, in bytes.
type Disk struct{ Capacity, Available int64 }

// Percent is how much of it is used.
func (d Disk) Percent() int {
	if d.Capacity <= 0 {
		return 0
	}
	return 100 - int(d.Available*100/d.Capacity)
}

// excess is how many bytes are to be freed.
func excess(t Thresholds, d Disk) int64 {
	if t.High >= 100 || d.Capacity <= 0 || d.Percent() < t.High {
		return 0
	}
	return max(0, d.Capacity*int64(100-t.Low)/100-d.Available)
}

// unused are the images that may be removed without being named, the longest
// unused first.
func unused(images []Image, imported bool) []Image {
	free := slices.DeleteFunc(slices.Clone(images), func(i Image) bool {
		return i.Used || i.Pinned || i.Imported && !imported
	})
	slices.SortStableFunc(free, func(a, b Image) int {
		return cmp.Or(a.LastUsed.Compare(b.LastUsed), a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.ID, b.ID))
	})
	return free
}

// expired are those that were unused for longer than MaxAge.
func expired(images []Image, t Thresholds, now time.Time) []Image {
	if t.MaxAge <= 0 {
		return nil
	}
	return slices.DeleteFunc(unused(images, false), func(i Image) bool {
		last := i.LastUsed
		if last.Before(i.FirstSeen) {
			last = i.FirstSeen
		}
		return now.Sub(last) <= t.MaxAge
	})
}

// candidates are those that may go when the disk is full, in this order. One of tomorrow is old
// enough: the clock was set back.
func candidates(images []Image, t Thresholds, now time.Time) []Image {
	return slices.DeleteFunc(unused(images, false), func(i Image) bool {
		return !i.FirstSeen.After(now) && now.Sub(i.FirstSeen) < t.MinAge
	})
}

// FullName is an image's name as the runtime spells it. An id stays what it is.
func FullName(name string) string {
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return name
	}
	return named.String()
}

// find is the image of that name, or of an id that begins so.
func find(images []Image, name string) []Image {
	full := FullName(name)
	var named, byID []Image
	for _, i := range images {
		switch {
		case i.ID == name, slices.Contains(i.Tags, full), slices.Contains(i.Digests, full):
			named = append(named, i)
		case isIDPrefix(name, i.ID):
			byID = append(byID, i)
		}
	}
	if len(named) > 0 {
		return named
	}
	return byID
}

// isIDPrefix takes ids as they are shown: at least 4 digits, with or without the
// algorithm.
func isIDPrefix(name, id string) bool {
	const algorithm, least = "sha256:", 4
	short := len(name) >= least && len(id) > len(algorithm)+len(name)-1 &&
		id[len(algorithm):len(algorithm)+len(name)] == name
	long := len(name) >= len(algorithm)+least && len(id) >= len(name) && id[:len(name)] == name
	return short || long
}
