package heap

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

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
	// least is how much garbage, in bytes, a collection at rest is worth.
	least = 2 << 20
)

// Heap trims the memory of the process when the node is idle.
type Heap struct {
	active wake.Signal

	mu      sync.Mutex
	resting bool
	most    int64 // memoryLimit
}

// New makes a Heap.
func New() *Heap { return &Heap{active: wake.New()} }

// Run returns memory to the system when the node becomes idle after activity, until ctx ends. It costs one garbage
// collection for each period of activity. During activity it limits Go's memory by the live heap. The limit is a soft
// one: Go exceeds it rather than spend more than half of the processors on collections.
func (h *Heap) Run(ctx context.Context) error {
	defer debug.SetGCPercent(debug.SetGCPercent(busyPercent))
	h.most = memoryLimit()
	defer debug.SetMemoryLimit(h.most)
	defer h.wake()
	h.Stir() // starting the agent is activity
	idle.Follow(ctx, h.active.C(), quiet, busy, func(first bool) {
		if first {
			h.wake()
			debug.SetGCPercent(busyPercent)
		}
		bound(h.most)
	}, func() {
		debug.FreeOSMemory()
		// The code of a start, for example, is a large part of the program, and was needed for a moment only.
		_ = pages.Drop() // it only saves memory
		h.rest()
	})
	return ctx.Err()
}

// rest makes the next collection wait until the heap has grown by quietPercent. Go itself collects every two minutes
// also when there is nearly no garbage, which costs an idle agent two fifths of its CPU time and maps 9 MB of the
// program again. It does so only while there is a percentage. So rest sets a limit instead, and a new one after each
// collection.
func (h *Heap) rest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resting = true
	h.limit()
	debug.SetGCPercent(-1)
}

// limit sets the limit of a resting heap now and after each collection. The caller has h.mu.
func (h *Heap) limit() {
	debug.SetMemoryLimit(min(h.most, restLimit()))
	type garbage struct{ _ [64]byte } // not so small that it shares its memory with objects that live on
	runtime.AddCleanup(new(garbage), func(h *Heap) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.resting {
			h.limit()
		}
	}, h)
}

// wake ends the time in which rest sets limits.
func (h *Heap) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resting = false
}

// restLimit is the limit of Go's memory, in bytes, at which it collects when the heap has grown by quietPercent. Go
// counts against it everything but free memory, and keeps 3 % and at least 1 MiB of it for itself.
func restLimit() int64 {
	all := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(all)
	of := func(i int) int64 { return int64(all[i].Value.Uint64()) } //nolint:gosec // no heap has 2^62 bytes
	live, notHeap := of(0), of(1)-of(2)-of(3)-of(4)
	heap := live + max(live*quietPercent/100, least)
	return notHeap + heap + heap/16 + 1<<20
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
