package worker

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/model/object"
)

// Delays after a failure without a RetryError.
const (
	retryFirst = 500 * time.Millisecond
	retryMax   = 10 * time.Second
)

// Tasks are the child goroutines of one pod. Each key has at most one running task. When a task ends, the worker makes
// a pass. The key of a failed task is held until its next try is due: at a time, or when an object changes that the
// task needs (object.Missing, object.Lacking).
//
// A task does work that must not delay the rest of the pod: the mounts, the sandbox, the start of one container, the
// stop of another.
type Tasks struct {
	now   func() time.Time
	owner taskOwner

	mu       sync.Mutex
	patience time.Duration  // of tasks that start now
	pass     int            // counts the worker's passes
	last     map[string]int // the pass during which a key's task ended
	running  map[string]*task
	held     map[string]hold
	wg       guard.Group
}

// taskOwner is the worker that the tasks belong to.
type taskOwner interface {
	Wake()
	// panicked reports a panic and returns when the next try may begin.
	panicked(what string, p *guard.Panic) time.Time
}

// task is a running task.
type task struct {
	cancel   context.CancelFunc
	began    time.Time
	patience time.Duration
	// changed are the objects that have changed since the task began. The task may not have seen the changes.
	changed map[object.Key]bool
}

type hold struct {
	// until is when the next try is due. It is zero if only a change of one of objects makes it due.
	until    time.Time
	objects  []object.Key
	failures int
	err      error
}

// due reports whether the next try may begin.
func (h hold) due(now time.Time) bool {
	return h.err == nil || !h.until.IsZero() && !now.Before(h.until)
}

func newTasks(now func() time.Time, owner taskOwner) *Tasks {
	return &Tasks{
		now: now, owner: owner, patience: callPatience,
		last: map[string]int{}, running: map[string]*task{}, held: map[string]hold{},
	}
}

// begin starts a pass.
func (t *Tasks) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass++
}

// Go runs f in a goroutine. It does nothing and returns false if a task with this key runs, is held after a failure, or
// has ended during this pass: only the next pass sees its effect. f's context is ctx; Cancel(key) ends it earlier.
func (t *Tasks) Go(ctx context.Context, key string, f func(context.Context) error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ended := t.last[key]
	if _, busy := t.running[key]; busy || !t.held[key].due(t.now()) || ended && last == t.pass {
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	t.running[key] = &task{cancel: cancel, began: t.now(), patience: t.patience, changed: map[object.Key]bool{}}
	t.wg.Go(func() {
		defer cancel()
		err := guard.Call(func() error { return f(ctx) })
		interrupted := ctx.Err() != nil
		if p := guard.Of(err); p != nil {
			interrupted, err = false, RetryAt(t.owner.panicked(key, p), err)
		}
		t.end(key, err, interrupted)
	})
	return true
}

// startsFor sets the patience of the tasks that start from now on.
func (t *Tasks) startsFor(patience time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.patience = patience
}

// hangs returns the tasks that take longer than their patience.
func (t *Tasks) hangs() (all []Hang) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for key, one := range t.running {
		if now.Sub(one.began) > one.patience {
			all = append(all, Hang{What: key, Since: one.began})
		}
	}
	return all
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
			h.until = t.now().Add(retry.Delay(retryFirst, retryMax, h.failures))
		}
		t.held[key] = h
	}
	t.mu.Unlock()
	t.owner.Wake()
}

// Running reports whether a task with this key runs.
func (t *Tasks) Running(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.running[key]
	return ok
}

// busy reports whether any task runs.
func (t *Tasks) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.running) > 0
}

// Cancel ends the context of the task with this key, if one runs.
func (t *Tasks) Cancel(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if running, ok := t.running[key]; ok {
		running.cancel()
	}
}

// Wait returns when no task runs.
func (t *Tasks) Wait() { t.wg.Wait() }

// release releases all held keys, after a change of the pod.
func (t *Tasks) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.held)
}

// changed releases the keys that are held because of one of these objects. It reports whether there was one.
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

// retry releases the keys whose error matches. It reports whether there was one.
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

// nextTry returns when the first held key is due; zero if none is.
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

// failures returns the errors of held keys.
func (t *Tasks) failures() map[string]error {
	t.mu.Lock()
	defer t.mu.Unlock()
	errs := make(map[string]error, len(t.held))
	for key, h := range t.held {
		errs[key] = h.err
	}
	return errs
}

// earliest returns the earlier of two times. Zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
