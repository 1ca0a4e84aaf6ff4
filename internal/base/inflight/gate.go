package inflight

import "sync"

// Gate admits work until it is closed. The zero value is open and empty. All methods are safe for concurrent use.
// Do not copy a Gate after its first use.
type Gate struct {
	mu     sync.Mutex
	inside int
	closed bool
	idle   []chan struct{} // callers of Idle and Close that wait for inside to become 0
}

// Enter admits one piece of work, which must call Leave when it ends. It returns false once the gate is closed. The
// work must not begin then, and must not call Leave.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

// Leave ends one piece of work that Enter has admitted. It panics if no work is inside.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside == 0 {
		panic("inflight: Leave without Enter")
	}
	if g.inside--; g.inside > 0 {
		return
	}
	for _, c := range g.idle {
		close(c)
	}
	g.idle = nil
}

// Close refuses new work from now on. The returned channel is closed when the last admitted work has left. Close may be
// called again, and never blocks.
func (g *Gate) Close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	return g.idleLocked()
}

// Idle returns a channel that is closed as soon as no work is inside. It leaves the gate open, so new work may have
// entered by the time the caller receives.
func (g *Gate) Idle() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.idleLocked()
}

func (g *Gate) idleLocked() <-chan struct{} {
	c := make(chan struct{})
	if g.inside == 0 {
		close(c)
	} else {
		g.idle = append(g.idle, c)
	}
	return c
}
