package garbage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
)

// Image is an image of the node with its facts from the ledger.
type Image struct {
	ID string
	// Tags and Digests are its full names.
	Tags, Digests []string
	Size          int64 // bytes, as the runtime counts it
	Pinned        bool  // the runtime protects it from removal
	Imported      bool  // loaded by hand, and not pulled
	Used          bool  // a container or a pod uses it now
	FirstSeen     time.Time
	LastUsed      time.Time // zero: never
}

// Thresholds say when images are removed.
type Thresholds struct {
	// High is the disk usage in percent that starts the removal of images. Low is the usage that ends it. High 100
	// means never.
	High, Low int
	// MinAge is how long an image must have been known before it may be removed to free disk space.
	MinAge time.Duration
	// MaxAge is how long an image may stay unused. 0 means for ever.
	MaxAge time.Duration
	// Imported means that images that were imported by hand may be removed too.
	Imported bool
}

// Disk is the file system that holds the images, in bytes.
type Disk struct{ Capacity, Available int64 }

// Percent returns how much of the disk is used.
func (d Disk) Percent() int {
	if d.Capacity <= 0 {
		return 0
	}
	return 100 - int(d.Available*100/d.Capacity)
}

// excess returns how many bytes should be freed.
func excess(t Thresholds, d Disk) int64 {
	if t.High >= 100 || d.Capacity <= 0 || d.Percent() < t.High {
		return 0
	}
	return max(0, d.Capacity*int64(100-t.Low)/100-d.Available)
}

// unused returns the images that may be removed without being named, the longest unused first.
func unused(images []Image, imported bool) []Image {
	free := slices.DeleteFunc(slices.Clone(images), func(i Image) bool {
		return i.Used || i.Pinned || i.Imported && !imported
	})
	slices.SortStableFunc(free, func(a, b Image) int {
		return cmp.Or(a.LastUsed.Compare(b.LastUsed), a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.ID, b.ID))
	})
	return free
}

// expired returns the images that have been unused for longer than MaxAge.
func expired(images []Image, t Thresholds, now time.Time) []Image {
	if t.MaxAge <= 0 {
		return nil
	}
	return slices.DeleteFunc(unused(images, t.Imported), func(i Image) bool {
		last := i.LastUsed
		if last.Before(i.FirstSeen) {
			last = i.FirstSeen
		}
		return now.Sub(last) <= t.MaxAge
	})
}

// candidates returns the images that may be removed from a full disk, in order. An image that was first seen in the
// future counts as old enough: the clock was set back.
func candidates(images []Image, t Thresholds, now time.Time) []Image {
	return slices.DeleteFunc(unused(images, t.Imported), func(i Image) bool {
		return !i.FirstSeen.After(now) && now.Sub(i.FirstSeen) < t.MinAge
	})
}

// FullName returns an image's name as the runtime spells it. An id stays unchanged.
func FullName(name string) string {
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return name
	}
	return named.String()
}

// find returns the images with that name, or those whose id begins with it.
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

// isIDPrefix reports whether name abbreviates an id: at least 4 digits, with or without the algorithm.
func isIDPrefix(name, id string) bool {
	const algorithm, least = "sha256:", 4
	short := len(name) >= least && len(id) > len(algorithm)+len(name)-1 &&
		id[len(algorithm):len(algorithm)+len(name)] == name
	long := len(name) >= len(algorithm)+least && len(id) >= len(name) && id[:len(name)] == name
	return short || long
}

// shown is how many images an event names.
const shown = 5

// removedMessage says which images were removed, and why.
func removedMessage(gone []Image, cause string) string {
	var names []string
	for _, i := range gone[:min(shown, len(gone))] {
		names = append(names, i.String())
	}
	text := fmt.Sprintf("removed %d unused images (%d bytes), because %s: %s", len(gone), size(gone), cause,
		strings.Join(names, ", "))
	if more := len(gone) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
