package drift

import (
	"slices"

	"github.com/berth-run/berth/internal/base/cgroupfile"
)

// concerns says whether a write may be to a value that is looked after.
func concerns(e write) bool { return slices.Contains(cgroupfile.Files(), e.file) }

// mostLooks is how often something else may be found in a row. Whoever is right to
// write has ended by then.
const mostLooks = 3

// suspicion is what the looks at one subject have found in a row.
type suspicion struct {
	found []cgroupfile.Change
	looks int
}

// next takes in one look, and says whether what it found is to be repaired: what
// the look before has found too, or what goes on being something else. Otherwise
// it may be a change under way.
func (s suspicion) next(found []cgroupfile.Change) (now suspicion, confirmed bool) {
	if len(found) == 0 {
		return suspicion{}, false
	}
	now = suspicion{found: found, looks: s.looks + 1}
	if slices.Equal(s.found, found) || now.looks == mostLooks {
		return suspicion{}, true
	}
	return now, false
}

// remaining are those that are left as they were found.
func remaining(found, left []cgroupfile.Change) []cgroupfile.Change {
	return slices.DeleteFunc(slices.Clone(left), func(c cgroupfile.Change) bool { return !slices.Contains(found, c) })
}
