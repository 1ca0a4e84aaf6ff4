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

// fileVersion is the format version of a timeline's file. Files with another version are removed.
const fileVersion = 1

// maxFile is the largest file that is read, in bytes. maxSpans spans take a tenth of it.
const maxFile = 8 << 20

// stored is the content of a timeline's file, <trace id>.json. It is not in the format of
// checkpoint.Save, so that the files of earlier versions stay readable.
type stored struct {
	Version  int      `json:"version"`
	Timeline Timeline `json:"timeline"`
}

// Run reads the timelines of previous agents, then writes changed ones until ctx ends, and once more after that. It
// logs and retries failures of the disk and never returns them. Files are renamed into place but not synced: they
// survive the end of the process, but perhaps not a power failure.
func (r *Recorder) Run(ctx context.Context) error {
	w := writer{Recorder: r}
	if r.dir != "" {
		w.load()
	}
	for w.pace.Wait(ctx, w.dirty.C(), w.delay) {
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

// flush writes changed timelines, deletes the files of removed ones, and releases the memory of settled spans.
func (w *writer) flush() {
	changed, gone := w.collect()
	var errs []error
	for _, t := range changed {
		errs = append(errs, w.write(t))
	}
	errs = append(errs, w.remove(gone))
	err := errors.Join(errs...)
	switch fails, recovered := w.pace.Record(err); {
	case fails:
		w.log.Warn("write timelines failed, held in memory until a retry succeeds", "dir", w.dir, "err", err)
	case recovered:
		w.log.Info("timelines written to disk again", "dir", w.dir)
	}
}

// collect returns the timelines to write and to delete.
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

// write writes one timeline to disk.
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
	return checkpoint.ReplaceUnsynced(w.path(id), text)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// remove deletes the files of removed timelines.
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

// load reads the timelines of previous agents. It deletes files that cannot be read, because they would fail at every
// start.
func (w *writer) load() {
	entries, err := os.ReadDir(w.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		w.log.Warn("read earlier timelines failed, they are lost", "dir", w.dir, "err", err)
		return
	}
	var old []*trail
	var bad []error
	for _, e := range entries {
		path := filepath.Join(w.dir, e.Name())
		name, cut := strings.CutSuffix(e.Name(), ".tmp")
		id, ok := traceID(name)
		switch {
		case !ok: // not a timeline's file
		case cut: // an interrupted write; the file without the suffix counts
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
		w.log.Warn("damaged timelines removed", "dir", w.dir, "err", err)
	}
	slices.SortFunc(old, func(a, b *trail) int {
		return cmp.Compare(a.settled.Start.UnixNano(), b.settled.Start.UnixNano())
	})

	w.mu.Lock()
	defer w.mu.Unlock()
	w.trails = append(old, w.trails...)
	w.forget()
}

// traceID returns the id in a file's name.
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
