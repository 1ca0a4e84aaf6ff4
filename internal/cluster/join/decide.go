package join

import (
	"time"

	"github.com/berth-run/berth/internal/cluster/kubeapi"
)

// silence is how long every request must have failed before the saved pods start without the API server. An API
// server that restarts, or whose address moves to another machine, refuses connections for a moment. Pods that were
// deleted while this node was off must not start because of that.
const silence = 2 * time.Second

// recheck is the time between two evaluations of away while the API server fails.
const recheck = 250 * time.Millisecond

// away reports whether the API server certainly does not answer. If it may still answer, again is the time until the
// next check, or 0 to wait for a change of state. A refusal is an answer, and a pending request is no failure.
func away(s kubeapi.State) (gone bool, again time.Duration) {
	switch {
	case !s.Away():
		return false, 0
	case s.Failing() < silence:
		return false, recheck
	}
	return true, 0
}
