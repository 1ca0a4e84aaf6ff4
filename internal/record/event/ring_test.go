package event

import (
	"fmt"
	"runtime"
	"testing"
)

// A full ring takes as much memory after many events as after the first ones.
func TestFullRingDoesNotGrow(t *testing.T) {
	const limit = 10_000
	r, now, n := newRing(limit), start, 0
	fill := func(rounds int) uint64 {
		for range rounds * limit {
			n++
			r.add(groupKey{ref: ref(fmt.Sprintf("pod-%08d", n))}, fmt.Sprintf("message %08d", n), nil, now)
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	first := fill(2)
	if last := fill(8); last > first+first/20 {
		t.Errorf("the heap has %d KiB after %d events and %d KiB after %d", first>>10, 2*limit, last>>10, n)
	}
	if r.len != limit || len(r.groups) != limit || len(r.texts) != limit {
		t.Errorf("%d events in %d groups with %d texts", r.len, len(r.groups), len(r.texts))
	}
}
