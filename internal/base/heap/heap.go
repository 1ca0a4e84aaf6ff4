package heap

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

// Heap knows whether something happens on the node.
type Heap struct{ active chan struct{} }

// New makes a Heap.
func New() *Heap { return &Heap{active: make(chan struct{}, 1)} }

// Run gives the memory of a burst back to the system when the node has become
// quiet. It costs one garbage collection for each time of activity, and nothing in
// between.
func (h *Heap) Run(ctx context.Context) error {
	defer debug.SetGCPercent(debug.SetGCPercent(busyPercent))
	h.Stir() // to start is work
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-h.active:
			debug.SetGCPercent(busyPercent)
		}
		for began, resting := time.Now(), false; !resting && time.Since(began) < busy; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-h.active:
			case <-time.After(quiet):
				resting = true
			}
		}
		debug.SetGCPercent(quietPercent)
		debug.FreeOSMemory()
	}
}

// Stir notes that something happens on the node.
func (h *Heap) Stir() {
	select {
	case h.active <- struct{}{}:
	default:
	}
}
