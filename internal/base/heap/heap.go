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
}

// New makes a Heap.
func New() *Heap { return &Heap{active: wake.New()} }

// Run returns memory to the system when the node becomes idle after activity, until ctx ends. It costs one garbage
// collection for each period of activity. During activity it limits Go's memory by the live heap. The limit is a soft
// one: Go exceeds it rather than spend more than half of the processors on collections.
func (h *Heap) Run(ctx context.Context) error {
	defer debug.SetGCPercent(debug.SetGCPercent(busyPercent))
	defer debug.SetMemoryLimit(memoryLimit())
	defer h.endRest()
	h.Stir() // starting the agent is activity
	idle.Follow(ctx, h.active.C(), quiet, busy, func(first bool) {
		if first {
			h.endRest()
			debug.SetGCPercent(busyPercent)
		}
		limit(max(room, growth*sizes("/gc/heap/live:bytes")[0]))
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
	h.limitRest()
	debug.SetGCPercent(-1)
}

// limitRest sets the limit of a resting heap now and after each collection. The caller has h.mu.
func (h *Heap) limitRest() {
	limit(restLimit())
	// The next collection frees the array. Go would put a smaller one together with objects that live on.
	runtime.AddCleanup(new([64]byte), func(h *Heap) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.resting {
			h.limitRest()
		}
	}, h)
}

// endRest ends what rest has begun: later collections do not change the limit.
func (h *Heap) endRest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resting = false
}

// restLimit is the limit of Go's memory, in bytes, at which it collects when the heap has grown by quietPercent. Go
// counts against it everything but free memory, and keeps 3 % and at least 1 MiB of it for itself.
func restLimit() int64 {
	all := sizes("/gc/heap/live:bytes", "/memory/classes/total:bytes", "/memory/classes/heap/released:bytes",
		"/memory/classes/heap/free:bytes", "/memory/classes/heap/objects:bytes")
	live, notHeap := all[0], all[1]-all[2]-all[3]-all[4]
	heap := live + max(live*quietPercent/100, least)
	return notHeap + heap + heap/16 + 1<<20
}

// sizes reads sizes in bytes from package metrics.
func sizes(names ...string) []int64 {
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples)
	all := make([]int64, len(names))
	for i, s := range samples {
		all[i] = int64(s.Value.Uint64()) //nolint:gosec // no process has 2^62 bytes
	}
	return all
}

// memoryLimit is the process's own limit, GOMEMLIMIT. It is read once: in a process with several agents, another Heap
// may have set a lower one since.
var memoryLimit = sync.OnceValue(func() int64 { return debug.SetMemoryLimit(-1) })

// limit limits Go's memory to some bytes, or to memoryLimit if that is less.
func limit(bytes int64) { debug.SetMemoryLimit(min(memoryLimit(), bytes)) }

// Stir reports activity on the node.
func (h *Heap) Stir() {
	h.active.Wake()
}
