package probe

import (
	"context"
	"runtime"
	"sync"
	"time"
)

const (
	// holdLeast and holdMost are the bounds of the hold. holdMost is longer than the default timeout of a probe.
	holdLeast = 250 * time.Millisecond
	holdMost  = 2 * time.Second
	// decay is the part of the hold that a probe takes away when it ends in time: 1/decay.
	decay = 500
)

// starts bounds how many exec probes start at the same time, so that many of them do not starve each other and the
// containers of CPU. A probe gives its place back when it ends, or after the hold: a probe that hangs is not starting
// any more, and delays no other.
//
// On a busy machine a start takes longer than the least hold. If the places were free then, more and more probes would
// start beside each other until none of them ends in time, and that would go on for ever. So each probe that exceeds
// its timeout doubles the hold, and each one that ends in time shortens it a little. Probes then wait longer for their
// turn, and end in time.
type starts struct {
	places chan struct{} // one in use by each probe that starts

	mu   sync.Mutex
	hold time.Duration
}

// newStarts returns starts with n places, or for 0 with two for each CPU, and at least four.
func newStarts(n int) *starts {
	if n <= 0 {
		n = max(4, 2*runtime.NumCPU())
	}
	return &starts{places: make(chan struct{}, n), hold: holdLeast}
}

// enter waits for a place. leave gives it back. late says that the probe has exceeded its timeout, and that it may have
// had too little CPU time.
func (s *starts) enter(ctx context.Context) (leave func(late bool)) {
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return func(bool) {}
	}
	var once sync.Once
	free := func() { once.Do(func() { <-s.places }) }
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	timer := time.AfterFunc(hold, free)
	return func(late bool) {
		timer.Stop()
		s.learn(late)
		free()
	}
}

// learn adapts the hold to the end of a probe.
func (s *starts) learn(late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if late {
		s.hold = min(2*s.hold, holdMost)
	} else {
		s.hold = max(s.hold-s.hold/decay, holdLeast)
	}
}
