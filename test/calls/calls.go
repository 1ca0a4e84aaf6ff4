package calls

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Log has the calls that a plugin has received. All methods are safe for concurrent use.
type Log struct {
	plugin string

	mu    sync.Mutex
	calls []string
	added chan struct{} // closed and replaced at each call
}

// New makes an empty log. plugin names the plugin in errors, for example "DRA driver".
func New(plugin string) *Log { return &Log{plugin: plugin, added: make(chan struct{})} }

// Record adds a call.
func (l *Log) Record(call string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, call)
	close(l.added)
	l.added = make(chan struct{})
}

// Calls returns the calls so far in order.
func (l *Log) Calls() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

// Await waits until the plugin has received a call, or until ctx ends.
func (l *Log) Await(ctx context.Context, call string) error {
	for {
		l.mu.Lock()
		added, received := l.added, slices.Contains(l.calls, call)
		l.mu.Unlock()
		if received {
			return nil
		}
		select {
		case <-added:
		case <-ctx.Done():
			return fmt.Errorf("wait for the call %q of the %s: it received only %q", call, l.plugin, l.Calls())
		}
	}
}
