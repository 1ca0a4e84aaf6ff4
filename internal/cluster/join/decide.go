package join

import (
	"time"

	"github.com/berth-run/berth/internal/cluster/kubeapi"
)

// silence is for how long nothing but failures must come from the API server before
// the pods of the last time start without it. One that is started anew, or whose
// address moves to another machine, refuses connections for a moment; what was
// deleted while this node was off must not start for that.
const silence = 2 * time.Second

// lookAgain is how often an API server that fails is looked at.
const lookAgain = 250 * time.Millisecond

// away says whether the API server is known not to answer; if not, when to look
// again, 0 for when its state changes. A refusal is an answer, and what still waits
// for one is no failure.
func away(s kubeapi.State) (gone bool, again time.Duration) {
	switch {
	case !s.Away():
		return false, 0
	case s.Failing() < silence:
		return false, lookAgain
	}
	return true, 0
}
