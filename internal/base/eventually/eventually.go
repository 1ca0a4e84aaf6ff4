package eventually

import (
	"testing"
	"time"

	"github.com/berth-run/berth/internal/base/poll"
)

// patience is how long a wait may take. It is far longer than any wait here needs on a busy machine. So a test that
// runs out of it has found something that hangs.
const patience = time.Minute

// pause is the time between the first two looks, and slowest the longest between any two: long waits must not keep a
// processor busy that what they wait for needs.
const (
	pause   = 2 * time.Millisecond
	slowest = 20 * time.Millisecond
)

// True waits until ok returns true, for at most a minute. After it, the test fails and names what it waited for.
func True(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Nothing(t, func() string {
		if ok() {
			return ""
		}
		return what
	})
}

// Nothing waits until left returns "", for at most a minute. After it, the test fails and names what is left.
func Nothing(t testing.TB, left func() string) {
	t.Helper()
	wait(t, patience, left)
}

func wait(t testing.TB, patience time.Duration, left func() string) {
	t.Helper()
	var rest string
	pace := poll.Pace{First: pause, Slowest: slowest, Limit: patience}
	if !pace.Until(func() bool { rest = left(); return rest == "" }) {
		t.Fatalf("not within %s: %s", patience, rest)
	}
}
