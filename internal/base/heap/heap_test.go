package heap

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
		if got := debug.SetMemoryLimit(-1); got != before {
			t.Errorf("at rest: %d bytes, want GOMEMLIMIT", got)
		}
		cancel()
		running.Wait()
	})
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("after Run: %d bytes, want GOMEMLIMIT", got)
	}
}
