package agent

import (
	"context"
	"runtime/debug"
	"time"
)

const (
	// quiet is how long nothing has to happen on the node before its memory is
	// trimmed, and busy how long it may go on without.
	quiet = 10 * time.Second
	busy  = time.Minute
	// How much the heap may grow, in percent of what lives in it, before it is
	// collected. While pods start, a collection takes CPU from them, and what it
	// would give back is given back a moment later. More than Go's default leaves
	// what lives scattered over pages that cannot be given back.
	quietPercent = 50
	busyPercent  = 100
)

// trim gives the memory of a burst back to the system when the node has become
// quiet: an agent is idle most of the time. It costs one garbage collection for
// each time of activity, and nothing in between.
func (a *Agent) trim(ctx context.Context) error {
	defer debug.SetGCPercent(debug.SetGCPercent(busyPercent))
	a.stir() // to start is work
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.active:
			debug.SetGCPercent(busyPercent)
		}
		for began, resting := time.Now(), false; !resting && time.Since(began) < busy; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-a.active:
			case <-time.After(quiet):
				resting = true
			}
		}
		debug.SetGCPercent(quietPercent)
		debug.FreeOSMemory()
	}
}

// stir notes that something happens on the node.
func (a *Agent) stir() {
	select {
	case a.active <- struct{}{}:
	default:
	}
}
