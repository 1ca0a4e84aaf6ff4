package agent

import (
	"context"
	"slices"
	"sync"
	"time"
)

// endPatience is how long the parts of the agent may take to end. The systemd unit (internal/cli/setup/berth.service)
// gives the process 30 s.
const endPatience = 20 * time.Second

// running is the set of parts that have not ended.
type running struct {
	mu    sync.Mutex
	parts map[string]bool
}

func (r *running) begin(name string) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parts == nil {
		r.parts = map[string]bool{}
	}
	r.parts[name] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.parts, name)
	}
}

func (r *running) names() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.parts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// bounded calls run with a context, and returns its error. If run takes longer than patience after the context has
// ended, bounded leaves it behind and calls left: a part waits for a call that does not return, such as a read from a
// file system whose server is gone. The end of the process ends that too.
func bounded(ctx context.Context, patience time.Duration, run func(context.Context, context.CancelFunc) error,
	left func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx, cancel) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		left()
		return nil
	}
}
