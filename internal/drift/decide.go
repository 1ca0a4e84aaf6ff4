package drift

import (
	"slices"

	"github.com/berth-run/berth/internal/cgroupfile"
)

// concerns says whether a write may be to a value that is looked after.
func concerns(e write) bool { return slices.Contains(cgroupfile.Files(), e.file) }

// confirmed says whether a second look found what the first has. Something else
// is a change under way.
func confirmed(first, second []cgroupfile.Change) bool {
	return len(first) > 0 && slices.Equal(first, second)
}
