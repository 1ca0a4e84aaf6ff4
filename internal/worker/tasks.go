package worker

import (
	"context"
	"sync"
)

// Tasks are the child goroutines of one pod, by key: at most one at a time for
// a key. When one ends the pod is looked at again.
//
// A task is for what must not hold up the rest of the pod: the start of one
// container, the stop of another.
type Tasks struct {
	ended func(key string, err error)

	mu      sync.Mutex
	running map[string]context.CancelFunc
	wg      sync.WaitGroup
}

func newTasks(ended func(key string, err error)) *Tasks {
	return &Tasks{ended: ended, running: map[string]context.CancelFunc{}}
}

// Go runs f in a goroutine unless a task with this key runs already, which it
// reports by false. f's context is ctx, ended early by Cancel(key).
func (t *Tasks) Go(ctx context.Context, key string, f func(context.Context) error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, busy := t.running[key]; busy {
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	t.running[key] = cancel
	t.wg.Go(func() {
		err := f(ctx)
		cancel()
		t.mu.Lock()
		delete(t.running, key)
		t.mu.Unlock()
		t.ended(key, err)
	})
	return true
}

// Running says whether a task with this key runs.
func (t *Tasks) Running(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.running[key]
	return ok
}

// Cancel ends the context of the task with this key, if there is one.
func (t *Tasks) Cancel(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if cancel, ok := t.running[key]; ok {
		cancel()
	}
}

// Wait returns when no task runs.
func (t *Tasks) Wait() { t.wg.Wait() }
