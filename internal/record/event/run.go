package event

import (
	"context"
	"path/filepath"

	"github.com/berth-run/berth/internal/base/checkpoint"
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
	for w.pace.Wait(ctx, w.dirty, w.delay) {
		w.flush()
	}
	w.flush()
	return w.journal.close()
}

// writer is the state of Run.
type writer struct {
	*Recorder
	journal journal
	written uint64 // the revision up to which all is on disk
	pace    checkpoint.Pace
}

// load takes over the events of the last run.
func (w *writer) load() {
	old, bad, err := w.journal.read()
	if err != nil {
		w.log.Warn("earlier events are lost", "path", w.journal.path, "err", err)
		return
	}
	if bad > 0 {
		w.log.Warn("skipped damaged lines of the event journal", "path", w.journal.path, "lines", bad, "events",
			len(old))
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
	if err == nil {
		w.written = rev
	}
	switch fails, recovered := w.pace.Wrote(err); {
	case fails:
		w.log.Warn("events are kept in memory only until the disk takes them", "path", w.journal.path, "err", err)
	case recovered:
		w.log.Info("events are written again", "path", w.journal.path)
	}
}
