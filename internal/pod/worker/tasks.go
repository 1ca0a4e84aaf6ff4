package worker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth/internal/model/object"
)

// Delays between tries of a task that failed without saying when to try again.
const (
	retryFirst = 500 * time.Millisecond
	retryMax   = 10 * time.Second
)

// Tasks are the child goroutines of one pod, by key: at most one at a time for
// a key. When one ends the pod is looked at again. A key whose task failed is
// held until its next try is due: at a time, or when an object changes that it
// failed for (object.Missing, object.Lacking).
//
// A task is for what must not hold up the rest of the pod: the mounts, the
// sandbox, the start of one container, the stop of another.
type Tasks struct {
	now   func() time.Time
	ended func(key string, err error)

	mu      sync.Mutex
	pass    int            // counts the worker's passes
	last    map[string]int // the pass during which a key's task ended
	running map[string]*task
	held    map[string]hold
	wg      sync.WaitGroup
}

// task is one that runs.
type task struct {
	cancel context.CancelFunc
	// changed are the objects that have changed since it began: it may not have
	// seen them.
	changed map[object.Key]bool
}

type hold struct {
	// until is when the next try is due; zero: when one of objects has changed.
	until    time.Time
	objects  []object.Key
	failures int
	err      error
}

// due says whether the next try may begin.
func (h hold) due(now time.Time) bool {
	return h.err == nil || !h.until.IsZero() && !now.Before(h.until)
}

func newTasks(now func() time.Time, ended func(key string, err error)) *Tasks {
	return &Tasks{now: now, ended: ended, last: map[string]int{}, running: map[string]*task{}, held: map[string]hold{}}
}

// begin starts a pass: what it decides is read from now on.
func (t *Tasks) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass++
}

// Go runs f in a goroutine. It does nothing and returns false while a task with
// this key runs, is held back after a failure, or has ended during this pass:
// the pass does not know of its effect, the next one will. f's context is ctx, ended
// early by Cancel(key).
func (t *Tasks) Go(ctx context.Context, key string, f func(context.Context) error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ended := t.last[key]
	if _, busy := t.running[key]; busy || !t.held[key].due(t.now()) || ended && last == t.pass {
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	t.running[key] = &task{cancel, map[object.Key]bool{}}
	t.wg.Go(func() {
		defer cancel()
		err := f(ctx)
		t.end(key, err, ctx.Err() != nil)
	})
	return true
}

func (t *Tasks) end(key string, err error, interrupted bool) {
	t.mu.Lock()
	changed := t.running[key].changed
	delete(t.running, key)
	t.last[key] = t.pass
	objects, only := object.Waits(err)
	switch {
	case err == nil, interrupted, slices.ContainsFunc(objects, func(k object.Key) bool { return changed[k] }):
		delete(t.held, key)
	default:
		h := hold{failures: t.held[key].failures + 1, err: err, objects: objects}
		if at, ok := retryTime(err); ok {
			h.until = at
		} else if !only {
			h.until = t.now().Add(min(retryFirst<<min(h.failures-1, 10), retryMax))
		}
		t.held[key] = h
	}
	t.mu.Unlock()
	t.ended(key, err)
}

// Running says whether a task with this key runs.
func (t *Tasks) Running(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.running[key]
	return ok
}

// busy says whether any task runs.
func (t *Tasks) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.running) > 0
}

// Cancel ends the context of the task with this key, if there is one.
func (t *Tasks) Cancel(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if running, ok := t.running[key]; ok {
		running.cancel()
	}
}

// Wait returns when no task runs.
func (t *Tasks) Wait() { t.wg.Wait() }

// release forgets all failures: what they depended on has changed.
func (t *Tasks) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.held)
}

// changed lets what failed for want of an object be tried again, and says
// whether there is any.
func (t *Tasks) changed(keys map[object.Key]bool) (released bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, running := range t.running {
		maps.Copy(running.changed, keys)
	}
	for key, h := range t.held {
		if slices.ContainsFunc(h.objects, func(k object.Key) bool { return keys[k] }) {
			delete(t.held, key)
			released = true
		}
	}
	return released
}

// retry lets what failed for such a reason be tried again, and says whether there
// is any.
func (t *Tasks) retry(matches func(error) bool) (released bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, h := range t.held {
		if matches(h.err) {
			delete(t.held, key)
			released = true
		}
	}
	return released
}

// nextTry is when the first held task may run again; zero when none is held.
func (t *Tasks) nextTry() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	var next time.Time
	now := t.now()
	for _, h := range t.held {
		if h.until.After(now) {
			next = earliest(next, h.until)
		}
	}
	return next
}

// failures are the errors of held tasks by key.
func (t *Tasks) failures() map[string]error {
	t.mu.Lock()
	defer t.mu.Unlock()
	errs := make(map[string]error, len(t.held))
	for key, h := range t.held {
		errs[key] = h.err
	}
	return errs
}

// earliest is the earlier of two times, where zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
