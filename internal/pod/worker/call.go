package worker

import (
	"cmp"
	"slices"
	"time"

	"github.com/berth-run/berth/internal/base/guard"
)

// call is the part of the work that the goroutine of Run does now.
type call struct {
	what     string // "" while it waits
	began    time.Time
	patience time.Duration
}

// Hang is a call or a task that takes longer than it should.
type Hang struct {
	// What names a step, a task, or another part of the work.
	What  string
	Since time.Time
}

// Hangs returns the calls and tasks that take longer than they should, the oldest first.
func (w *Worker) Hangs() []Hang {
	all := w.tasks.hangs()
	w.mu.Lock()
	if c := w.call; c.what != "" && w.opts.Now().Sub(c.began) > c.patience {
		all = append(all, Hang{What: c.what, Since: c.began})
	}
	w.mu.Unlock()
	slices.SortFunc(all, func(a, b Hang) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.What, b.What)) })
	return all
}

// calls runs f, and records the name of the call for Hangs meanwhile.
func (w *Worker) calls(what string, patience time.Duration, f func() error) error {
	w.mu.Lock()
	outer := w.call
	w.call = call{what: what, began: w.opts.Now(), patience: patience}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.call = outer
		w.mu.Unlock()
	}()
	return f()
}

// passed publishes the pod after a pass or a change of the stage.
func (w *Worker) passed() {
	_ = w.calls("status", callPatience, func() error { w.opts.Owner.Passed(w.uid); return nil })
}

// panicked sets the pod aside and returns when the next try may begin.
func (w *Worker) panicked(what string, p *guard.Panic) time.Time {
	w.mu.Lock()
	of := w.pod
	w.mu.Unlock()
	return w.opts.Owner.Panicked(of, what, p)
}

// attempt calls f. If f panics, it sets the pod aside and returns an error with the time of the next try.
func (w *Worker) attempt(what string, f func() error) error {
	err := guard.Call(f)
	if p := guard.Of(err); p != nil {
		return RetryAt(w.panicked(what, p), err)
	}
	return err
}
