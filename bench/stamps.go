package main

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

// stampWatch waits for stamps. A stamp is a file with the start time of a workload, which the workload writes.
type stampWatch struct {
	dir     string
	notify  *fsnotify.Watcher
	missing map[string]bool
	newest  time.Time
}

// watchStamps watches for stamps that do not exist yet.
func watchStamps(dir string, names ...string) (*stampWatch, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &stampWatch{dir: dir, notify: notify, missing: map[string]bool{}}
	for _, name := range names {
		w.missing[name] = true
	}
	if err := notify.Add(dir); err != nil {
		return nil, errors.Join(err, notify.Close())
	}
	return w, nil
}

func (w *stampWatch) close() { _ = w.notify.Close() }

// last waits for all stamps, and returns when the last container executed its first instruction.
func (w *stampWatch) last(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
func (w *stampWatch) note(name string) {
	if !w.missing[name] {
		return
	}
	at, ok := readStamp(filepath.Join(w.dir, name))
	if !ok {
		return
	}
	delete(w.missing, name)
	if at.After(w.newest) {
		w.newest = at
	}
}

// readStamp reads a stamp. It returns false if the file does not exist or is incomplete.
func readStamp(path string) (time.Time, bool) {
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasSuffix(string(text), "\n") {
		return time.Time{}, false
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return time.Unix(0, ns), err == nil
}

func clearDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	return err
}
