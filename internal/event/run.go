package event

import (
	"context"
	"path/filepath"
	"time"
)

// The time between attempts to write while the disk refuses.
const (
	retryMin = 5 * time.Second
	retryMax = time.Minute
)

// Run reads the events of the last run, then writes new ones until ctx ends,
// and the last ones after that. What goes wrong with the disk is logged and
// tried again, never returned: events are then kept in memory.
func (r *Recorder) Run(ctx context.Context) error {
	if r.dir == "" {
		<-ctx.Done()
		return nil
	}
	w := writer{Recorder: r, journal: journal{path: filepath.Join(r.dir, journalName)}}
	w.load()
	for w.wait(ctx) {
		w.flush()
	}
	w.flush()
	return w.journal.close()
}

// writer is the state of Run.
type writer struct {
	*Recorder
	journal journal
	written uint64        // the revision up to which all is on disk
	retry   time.Duration // after the last write failed: until the next; else 0
}

// load takes over the events of the last run.
func (w *writer) load() {
	old, bad, err := w.journal.read()
	if err != nil {
		w.log.Warn("earlier events are lost", "path", w.journal.path, "err", err)
		return
	}
	if bad > 0 {
		w.log.Warn("skipped damaged lines of the event journal", "path", w.journal.path, "lines", bad, "events", len(old))
	}
	if len(old) == 0 {
		return
	}
	w.written = old[len(old)-1].rev
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ring.len > 0 {
		w.written = 0 // an old event that already happened again has a new count
	}
	w.ring = w.ring.restore(old)
	for c := range w.watchers {
		wake(c)
	}
}

// wait returns true when there is something to write, and false when ctx ended.
func (w *writer) wait(ctx context.Context) bool {
	delay := w.delay
	if w.retry > 0 {
		delay = w.retry
	} else {
		select {
		case <-ctx.Done():
			return false
		case <-w.dirty:
		}
	}
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// flush writes what is not on disk yet.
func (w *writer) flush() {
	events, rev := w.since(w.written, Filter{})
	if len(events) == 0 && !w.journal.damaged {
		return
	}
	var err error
	if w.journal.damaged || w.journal.lines+len(events) > 2*w.max {
		events, rev = w.since(0, Filter{})
		err = w.journal.replace(events)
	} else {
		err = w.journal.append(events)
	}
	switch {
	case err != nil && w.retry == 0:
		w.log.Warn("events are kept in memory only until the disk takes them", "path", w.journal.path, "err", err)
		w.retry = retryMin
	case err != nil:
		w.retry = min(2*w.retry, retryMax)
	default:
		if w.retry > 0 {
			w.log.Info("events are written again", "path", w.journal.path)
		}
		w.retry = 0
		w.written = rev
	}
}
