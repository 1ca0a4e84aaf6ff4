package poll

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// looks returns when each look of a pace happens, counted from the first one, and the result of Until. The last look of
// found finds something.
func looks(t *testing.T, p Pace, found int) (at []time.Duration, ok bool) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		start := time.Now()
		ok = p.Until(func() bool {
			at = append(at, time.Since(start))
			return len(at) == found
		})
	})
	return at, ok
}

func TestUntilLooksAtItsPace(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		pace  Pace
		found int
		want  []time.Duration
		ok    bool
	}{
		"at once":               {Pace{First: ms}, 1, []time.Duration{0}, true},
		"always the same pause": {Pace{First: ms}, 4, []time.Duration{0, ms, 2 * ms, 3 * ms}, true},
		"pauses double": {Pace{First: ms, Slowest: 3 * ms}, 5,
			[]time.Duration{0, ms, 3 * ms, 6 * ms, 9 * ms}, true},
		"the limit is over":     {Pace{First: 2 * ms, Limit: 3 * ms}, 0, []time.Duration{0, 2 * ms, 4 * ms}, false},
		"found after the limit": {Pace{First: 9 * ms, Limit: 3 * ms}, 2, []time.Duration{0, 9 * ms}, true},
	} {
		t.Run(name, func(t *testing.T) {
			at, ok := looks(t, test.pace, test.found)
			if diff := cmp.Diff(test.want, at); diff != "" || ok != test.ok {
				t.Errorf("found %v, want %v; looks (-want +got):\n%s", ok, test.ok, diff)
			}
		})
	}
}
