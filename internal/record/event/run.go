package event

import (
	"context"
	"path/filepath"

	"github.com/berth-run/berth/internal/base/checkpoint"
)

// Run reads the events of the previous agent, then writes new ones until ctx ends, and once more after that. It logs
// and retries failures of the disk and never returns them; events are then held in memory.
func (r *Recorder) Run(ctx context.Context) error {
	if r.dir == "" {
		<-ctx.Done()
		return nil
	}
	w := writer{Recorder: r, journal: journal{path: filepath.Join(r.dir, journalName)}}
	w.load()
	for w.pace.Wait(ctx, w.dirty.C(), w.delay) {
		w.flush()
	}
	w.flush()
	return w.journal.close()
}

// writer is the state of Run.
type writer struct {
	*Recorder
	journal journal
	written uint64 // all events up to this revision are on disk
	pace    checkpoint.Pace
}

// load reads the events of the previous agent.
func (w *writer) load() {
	old, bad, err := w.journal.read()
	if err != nil {
		w.log.Warn("read earlier events failed, they are lost", "path", w.journal.path, "err", err)
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
		w.written = 0 // an old event that has happened again already has a new count
	}
	w.ring = w.ring.restore(old)
	for c := range w.watchers {
		c.Wake()
	}
}

// flush writes the events that are not on disk yet.
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
	switch fails, recovered := w.pace.Record(err); {
	case fails:
		w.log.Warn("write events failed, held in memory until a retry succeeds", "path", w.journal.path, "err", err)
	case recovered:
		w.log.Info("events written to disk again", "path", w.journal.path)
	}
}
