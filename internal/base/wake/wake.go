package wake

import "sync"

// Signal wakes one loop. Any number of calls of Wake before the loop receives are one. The zero value never wakes
// anything: use New.
type Signal struct{ c chan struct{} }

// New returns a signal that has not been raised.
func New() Signal { return Signal{c: make(chan struct{}, 1)} }

// Wake raises the signal. It never blocks.
func (s Signal) Wake() {
	select {
	case s.c <- struct{}{}:
	default: // raised already: the loop will look
	}
}

// Clear takes the signal back, if it has been raised.
func (s Signal) Clear() {
	select {
	case <-s.c:
	default:
	}
}

// C is the channel that the loop receives from. A receive takes the signal back.
func (s Signal) C() <-chan struct{} { return s.c }

// Set is a set of keys that wakes the loop which empties it. Any goroutine adds keys without waiting. One loop waits
// for C and takes the keys.
type Set[K comparable] struct {
	signal Signal

	mu   sync.Mutex
	keys map[K]bool
}

// NewSet returns an empty set.
func NewSet[K comparable]() *Set[K] { return &Set[K]{signal: New(), keys: map[K]bool{}} }

// Add adds a key.
func (s *Set[K]) Add(key K) { s.AddAll(map[K]bool{key: true}) }

// AddAll adds all keys of a map. Their values do not matter.
func (s *Set[K]) AddAll(keys map[K]bool) {
	s.mu.Lock()
	for key := range keys {
		s.keys[key] = true
	}
	s.mu.Unlock()
	s.signal.Wake()
}

// Take empties the set and returns its keys.
func (s *Set[K]) Take() map[K]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := s.keys
	s.keys = map[K]bool{}
	return keys
}

// C is the channel that the loop receives from before it takes the keys.
func (s *Set[K]) C() <-chan struct{} { return s.signal.C() }
