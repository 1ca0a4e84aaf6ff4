package printer

import (
	"fmt"
	"io"
	"strings"

	"github.com/berth-run/berth/internal/api"
)

// ImageNames returns a function that writes one line for each name of the images: what happened, and the
// name.
func ImageNames(what string) func(io.Writer, api.ImageList) error {
	return func(w io.Writer, images api.ImageList) error {
		for _, i := range images.Items {
			names := i.Tags
			if len(names) == 0 {
				names = i.Digests
			}
			if len(names) == 0 {
				names = []string{i.ID}
			}
			for _, n := range names {
				if _, err := fmt.Fprintf(w, "%s %s\n", what, n); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// PrunedImages writes the names of the removed images and the space they used.
func PrunedImages(w io.Writer, images api.ImageList) error {
	var size uint64
	for _, i := range images.Items {
		size += i.Size
	}
	if err := ImageNames("removed")(w, images); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d images, %s\n", len(images.Items), Bytes(size))
	return err
}

// inUse and unused are states of an image.
const inUse, unused = "in use", "unused"

// imageState returns the reasons why a prune keeps an image, or "unused".
func imageState(i api.Image) string {
	var why []string
	for _, s := range []struct {
		is   bool
		text string
	}{{i.InUse, inUse}, {i.Pinned, "pinned"}, {i.Loaded, "loaded"}} {
		if s.is {
			why = append(why, s.text)
		}
	}
	if len(why) == 0 {
		return unused
	}
	return strings.Join(why, ", ")
}

// ImageUsage writes a table of the disk space that images use.
func ImageUsage(w io.Writer, u *api.ImageUsage) error {
	t := NewTable(w, "IMAGES", "IN USE", "SIZE", "RECLAIMABLE", "DISK", "AVAILABLE", "USED")
	used := "<unknown>"
	if u.Capacity > 0 {
		const percent = 100
		used = fmt.Sprintf("%d%%", percent-u.Available*percent/u.Capacity)
	}
	t.Row(fmt.Sprint(u.Images), fmt.Sprint(u.InUse), Bytes(uint64(u.Size)), Bytes(uint64(u.Reclaimable)),
		Bytes(uint64(u.Capacity)), Bytes(uint64(u.Available)), used)
	return t.Flush()
}
