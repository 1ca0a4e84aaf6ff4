package timeline

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth/internal/base/checkpoint"
)

// fileVersion is the format of a timeline's file. Files of another are not read.
const fileVersion = 1

// maxFile is the largest file read back, in bytes. maxSpans spans take a tenth of it.
const maxFile = 8 << 20

// stored is a timeline's file, <trace id>.json.
type stored struct {
	Version  int      `json:"version"`
	Timeline Timeline `json:"timeline"`
}

// Run reads the timelines of earlier runs, then writes those that change until
// ctx ends, and the last changes after that. What goes wrong with the disk is
// logged and tried again, never returned. Files are renamed into place but not synced: they
// outlive the process, not always a power failure.
func (r *Recorder) Run(ctx context.Context) error {
	w := writer{Recorder: r}
	if r.dir != "" {
		w.load()
	}
	for w.pace.Wait(ctx, w.dirty, w.delay) {
		w.flush()
	}
	w.flush()
	return nil
}

// writer is the state of Run.
type writer struct {
	*Recorder
	pace checkpoint.Pace
}

// flush writes what changed, removes what was forgotten, and gives back the
// memory of the spans that are settled.
func (w *writer) flush() {
	changed, gone := w.collect()
	var errs []error
	for _, t := range changed {
		errs = append(errs, w.write(t))
	}
	errs = append(errs, w.remove(gone))
	err := errors.Join(errs...)
	switch fails, recovered := w.pace.Wrote(err); {
	case fails:
		w.log.Warn("timelines are kept in memory only until the disk takes them", "dir", w.dir, "err", err)
	case recovered:
		w.log.Info("timelines are written again", "dir", w.dir)
	}
}

// collect takes the lists of what is to be written and removed.
func (w *writer) collect() (changed, gone []*trail) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.trails {
		if t.changed {
			t.changed = false
			changed = append(changed, t)
		}
	}
	gone, w.gone = w.gone, nil
	return changed, gone
}

// write puts one timeline on disk.
func (w *writer) write(t *trail) error {
	w.mu.Lock()
	settled := t.settled == nil && t.finished && t.running == 0
	line := w.readUnlock(t)
	if settled {
		w.mu.Lock()
		t.settled, t.spans = &line, nil
		w.mu.Unlock()
	}
	if w.dir == "" {
		return nil
	}
	err := w.store(t.id, line)
	if err != nil {
		w.mu.Lock()
		t.changed = true
		w.mu.Unlock()
	}
	return err
}

func (w *writer) store(id trace.TraceID, line Timeline) error {
	text, err := json.Marshal(stored{Version: fileVersion, Timeline: line})
	if err != nil {
		return fmt.Errorf("encode timeline of pod %s/%s: %w", line.Namespace, line.Name, err)
	}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return err
	}
	path := w.path(id)
	next := path + ".tmp"
	if err = os.WriteFile(next, text, 0o600); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, removeIfThere(next))
	}
	return nil
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// remove deletes the files of forgotten timelines.
func (w *writer) remove(gone []*trail) error {
	if w.dir == "" {
		return nil
	}
	var errs []error
	for _, t := range gone {
		if err := removeIfThere(w.path(t.id)); err != nil {
			errs = append(errs, err)
			w.mu.Lock()
			w.gone = append(w.gone, t)
			w.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

func (w *writer) path(id trace.TraceID) string {
	return filepath.Join(w.dir, id.String()+".json")
}

// load takes over the timelines of earlier runs. Files that cannot be read are
// removed: they would be in the way at every start.
func (w *writer) load() {
	entries, err := os.ReadDir(w.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		w.log.Warn("earlier timelines are lost", "dir", w.dir, "err", err)
		return
	}
	var old []*trail
	var bad []error
	for _, e := range entries {
		path := filepath.Join(w.dir, e.Name())
		name, cut := strings.CutSuffix(e.Name(), ".tmp")
		id, ok := traceID(name)
		switch {
		case !ok: // not ours
		case cut: // a write that was cut off; the file beside it counts
			bad = append(bad, removeIfThere(path))
		default:
			t, err := readTrail(path, id)
			if err != nil {
				bad = append(bad, err, removeIfThere(path))
				continue
			}
			old = append(old, t)
		}
	}
	if err := errors.Join(bad...); err != nil {
		w.log.Warn("removed damaged timelines", "dir", w.dir, "err", err)
	}
	slices.SortFunc(old, func(a, b *trail) int {
		return cmp.Compare(a.settled.Start.UnixNano(), b.settled.Start.UnixNano())
	})

	w.mu.Lock()
	defer w.mu.Unlock()
	w.trails = append(old, w.trails...)
	w.forget()
}

// traceID reads the id from a file's name.
func traceID(name string) (id trace.TraceID, ok bool) {
	digits, ok := strings.CutSuffix(name, ".json")
	if !ok || len(digits) != hex.EncodedLen(len(id)) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(digits))
	return id, err == nil
}

func readTrail(path string, id trace.TraceID) (*trail, error) {
	name := filepath.Base(path)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s: not a file of up to %d bytes", name, maxFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var s stored
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if s.Version != fileVersion || s.Timeline.UID == "" || len(s.Timeline.Spans) == 0 {
		return nil, fmt.Errorf("%s: not a timeline of version %d", name, fileVersion)
	}
	line := &s.Timeline
	line.Interrupted = line.End.IsZero()
	return &trail{
		id:        id,
		uid:       line.UID,
		namespace: line.Namespace,
		name:      line.Name,
		finished:  true,
		settled:   line,
	}, nil
}
