package drift

import (
	"slices"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/inotify"
)

// concerns reports whether a write may change a value that this package repairs.
func concerns(e inotify.Event) bool { return slices.Contains(cgroupfile.Files(), e.Name) }

// mostChecks is how many checks in a row may find different changes. A legitimate writer has finished by then.
const mostChecks = 3

// suspicion holds the changes that consecutive checks of one subject have found.
type suspicion struct {
	found  []cgroupfile.Change
	checks int
}

// next adds one check and reports whether its findings must be repaired. They must if the previous check found the
// same, or after mostChecks checks with findings. Otherwise a legitimate change may be in progress.
func (s suspicion) next(found []cgroupfile.Change) (now suspicion, confirmed bool) {
	if len(found) == 0 {
		return suspicion{}, false
	}
	now = suspicion{found: found, checks: s.checks + 1}
	if slices.Equal(s.found, found) || now.checks == mostChecks {
		return suspicion{}, true
	}
	return now, false
}

// remaining returns the changes in left that were in found already: the repair had no effect on them.
func remaining(found, left []cgroupfile.Change) []cgroupfile.Change {
	return slices.DeleteFunc(slices.Clone(left), func(c cgroupfile.Change) bool { return !slices.Contains(found, c) })
}
