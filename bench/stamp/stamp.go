package stamp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Patience bounds the wait for stamps.
const Patience = 2 * time.Minute

// Watcher waits for stamps.
type Watcher struct {
	dir     string
	notify  *fsnotify.Watcher
	missing map[string]bool
	newest  time.Time
}

// Watch watches for stamps that do not exist yet.
func Watch(dir string, names ...string) (*Watcher, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &Watcher{dir: dir, notify: notify, missing: map[string]bool{}}
	for _, name := range names {
		w.missing[name] = true
	}
	if err := notify.Add(dir); err != nil {
		return nil, errors.Join(err, notify.Close())
	}
	return w, nil
}

// Close ends the watch.
func (w *Watcher) Close() { _ = w.notify.Close() }

// Last waits for all stamps, and returns the latest time in them. It fails after Patience.
func (w *Watcher) Last(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for len(w.missing) > 0 {
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for the stamps of %d containers: %w", len(w.missing), ctx.Err())
		case e := <-w.notify.Events:
			w.note(filepath.Base(e.Name))
		}
	}
	return w.newest, nil
}

// note reads a stamp if it is a missing one and complete.
func (w *Watcher) note(name string) {
	if !w.missing[name] {
		return
	}
	at, ok := Read(filepath.Join(w.dir, name))
	if !ok {
		return
	}
	delete(w.missing, name)
	if at.After(w.newest) {
		w.newest = at
	}
}

// Read reads a stamp. It returns false if the file does not exist or is incomplete.
func Read(path string) (time.Time, bool) {
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasSuffix(string(text), "\n") {
		return time.Time{}, false
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return time.Unix(0, ns), err == nil
}

// Clear removes all stamps of a directory.
func Clear(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	return err
}
