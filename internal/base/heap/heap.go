package heap

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"

	"github.com/berth-run/berth/internal/base/idle"
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
	// room is how much memory Go may use, in bytes, before it collects more often than busyPercent says. A collection
	// that gets too little of the processors counts new garbage as live, and the percentage alone then doubles it.
	room = 170 << 20
	// growth is how many times as large as the live heap Go's memory may be, where that is more than room.
	growth = 2
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
// collection for each period of activity. During activity it limits Go's memory by the live heap. The limit is a soft
// one: Go exceeds it rather than spend more than half of the processors on collections.
func (h *Heap) Run(ctx context.Context) error {
	defer debug.SetGCPercent(debug.SetGCPercent(busyPercent))
	most := memoryLimit()
	defer debug.SetMemoryLimit(most)
	h.Stir() // starting the agent is activity
	idle.Follow(ctx, h.active.C(), quiet, busy, func(first bool) {
		if first {
			debug.SetGCPercent(busyPercent)
		}
		bound(most)
	}, func() {
		debug.SetGCPercent(quietPercent)
		debug.SetMemoryLimit(most)
		debug.FreeOSMemory()
		// The code of a start, for example, is a large part of the program, and was needed for a moment only.
		_ = pages.Drop() // it only saves memory
	})
	return ctx.Err()
}

// memoryLimit is the process's own limit, GOMEMLIMIT. It is read once: in a process with several agents, another Heap
// may have set a lower one since.
var memoryLimit = sync.OnceValue(func() int64 { return debug.SetMemoryLimit(-1) })

// bound limits Go's memory by the heap that the last collection found live, and to at most most bytes.
func bound(most int64) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	limit := max(room, growth*int64(live[0].Value.Uint64())) //nolint:gosec // no heap has 2^62 bytes
	debug.SetMemoryLimit(min(most, limit))
}

// Stir reports activity on the node.
func (h *Heap) Stir() {
	h.active.Wake()
}
