package heap

import (
	"context"
	"runtime/debug"
	"time"

	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"

	"github.com/berth-run/berth/internal/base/pages"
	"github.com/berth-run/berth/internal/base/wake"
)

const (
	// quiet is how long the node must be idle before its memory is trimmed. busy is the longest time without trimming.
	quiet = 10 * time.Second
	busy  = time.Minute
	// How much the heap may grow before a collection, in percent of the live heap. While pods start, a collection would
	// take CPU from them, and the memory is returned a moment later anyway. More than Go's default scatters live
	// objects over pages that cannot be returned.
	quietPercent = 50
	busyPercent  = 100
)

// Heap trims the memory of the process when the node is idle.
type Heap struct{ active wake.Signal }

// New makes a Heap.
func New() *Heap { return &Heap{active: wake.New()} }

// FitBuffers replaces gRPC's pool of buffers. That rounds a message of 40 KiB up to 1 MiB, and pods with large
// annotations cause many of them. The new one rounds up to the next power of two. It must be called before the process
// uses gRPC.
func FitBuffers() {
	pool, err := mem.NewBinaryTieredBufferPool(8, 12, 14, 15, 16, 17, 18, 19, 20)
	if err != nil {
		panic(err) // it refuses only sizes that no machine has
	}
	experimental.SetDefaultBufferPool(pool)
}

// Run returns memory to the system when the node becomes idle after activity, until ctx ends. It costs one garbage
// collection for each period of activity.
func (h *Heap) Run(ctx context.Context) error {
	defer debug.SetGCPercent(debug.SetGCPercent(busyPercent))
	h.Stir() // starting the agent is activity
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-h.active.C():
			debug.SetGCPercent(busyPercent)
		}
		for began, resting := time.Now(), false; !resting && time.Since(began) < busy; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-h.active.C():
			case <-time.After(quiet):
				resting = true
			}
		}
		debug.SetGCPercent(quietPercent)
		debug.FreeOSMemory()
		// The code of a start, for example, is a large part of the program, and was needed for a moment only.
		_ = pages.Drop() // it only saves memory
	}
}

// Stir reports activity on the node.
func (h *Heap) Stir() {
	h.active.Wake()
}
