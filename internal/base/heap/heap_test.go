package heap

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth/internal/base/eventually"
)

// While the node is active, the limit of Go's memory follows the live heap, and stays below GOMEMLIMIT.
func TestMemoryIsLimitedByTheLiveHeap(t *testing.T) {
	const before = 600 << 20
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(before))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		h := New()
		var running sync.WaitGroup
		running.Go(func() { _ = h.Run(ctx) })
		limit := func(live int) int64 {
			held := make([]byte, live)
			runtime.GC()
			h.Stir()
			synctest.Wait()
			runtime.KeepAlive(held)
			return debug.SetMemoryLimit(-1)
		}
		if got := limit(1 << 20); got != room {
			t.Errorf("a small heap: %d bytes, want %d", got, room)
		}
		if got := limit(200 << 20); got < 400<<20 || got > 440<<20 {
			t.Errorf("a heap of 200 MiB: %d bytes, want twice as many", got)
		}
		if got := limit(400 << 20); got != before {
			t.Errorf("a heap of 400 MiB: %d bytes, want GOMEMLIMIT", got)
		}
		if got := limit(1 << 20); got != room {
			t.Errorf("a small heap again: %d bytes, want %d", got, room)
		}
		time.Sleep(2 * quiet)
		if got := debug.SetMemoryLimit(-1); got >= room {
			t.Errorf("at rest: %d bytes, want less than while the node is active", got)
		}
		if got := limit(1 << 20); got != room {
			t.Errorf("a small heap after the rest: %d bytes, want %d", got, room)
		}
		cancel()
		running.Wait()
	})
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("after Run: %d bytes, want GOMEMLIMIT", got)
	}
}

// At rest, Go collects because of garbage and not of time. The limit follows a heap that grows all the same, so that
// collections do not become more frequent.
func TestCollectionsAtRest(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(busyPercent))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	h := New()
	debug.FreeOSMemory()
	h.rest()
	defer h.endRest()
	if got := debug.SetGCPercent(-1); got != -1 {
		t.Errorf("the percentage of collections is %d, want none", got)
	}
	begin := collections()
	grow(64 << 20)
	// 2 MiB and then half of the heap each time make 9 of them from 1 to 65 MiB. Some start before the limit is new.
	if got := collections() - begin; got < 3 || got > 30 {
		t.Errorf("%d collections while the heap grew to 64 MiB", got)
	}
	grown := debug.SetMemoryLimit(-1)
	eventually.True(t, "a limit for the small heap", func() bool {
		runtime.GC()
		return debug.SetMemoryLimit(-1) < grown/2
	})
	begin = collections()
	for range 64 << 20 / (16 << 10) {
		sink = make([]byte, 16<<10)
	}
	if got := collections() - begin; got < 2 || got > 64 {
		t.Errorf("%d collections for 64 MiB of garbage", got)
	}
}

// grow makes live objects of 16 KiB.
func grow(size int) {
	var held [][]byte
	for range size / (16 << 10) {
		held = append(held, make([]byte, 16<<10))
	}
	runtime.KeepAlive(held)
}

var sink []byte // keeps the compiler from leaving an allocation out

func collections() uint32 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.NumGC
}
