package wake

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

// C is the channel that the loop receives from. A receive takes the signal back.
func (s Signal) C() <-chan struct{} { return s.c }
