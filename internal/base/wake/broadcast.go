package wake

import "sync"

// Broadcast wakes every goroutine that waits for a change. Its zero value is ready to use.
type Broadcast struct {
	mu   sync.Mutex
	next chan struct{} // nil: nobody has waited since the last Wake
}

// C returns the channel that the next Wake closes. To miss no change, get the channel before the state that changes.
func (b *Broadcast) C() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// Wake wakes everything that waits for a channel from C. It never blocks.
func (b *Broadcast) Wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
