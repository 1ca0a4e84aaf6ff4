package dirwatch

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

func next(t *testing.T, w *Watcher) string {
	t.Helper()
	select {
	case change := <-w.Changes():
		return change
	case <-time.After(time.Minute):
		t.Fatal("no change was reported")
		return ""
	}
}

func TestReportsTheFileThatChanged(t *testing.T) {
	dir := t.TempDir()
	w := Start(time.Hour, slog.New(slog.DiscardHandler))
	defer w.Close()
	if err := w.Add(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := next(t, w); got != path {
		t.Errorf("change of %q, want %q", got, path)
	}
}

// Another program may use up the inotify instances before the agent starts, and free them later.
func TestReportsAnythingWhileNoInstanceIsLeft(t *testing.T) {
	dir := t.TempDir()
	left := 0
	w := start(time.Millisecond, slog.New(slog.DiscardHandler), func() (*fsnotify.Watcher, error) {
		if left++; left < 4 {
			return nil, syscall.EMFILE
		}
		return fsnotify.NewWatcher()
	})
	defer w.Close()
	if err := w.Add(dir); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := next(t, w); got != Anything {
			t.Errorf("change of %q", got)
		}
	}
	path := filepath.Join(dir, "a")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := next(t, w); got != path {
		t.Errorf("change of %q after an instance was free, want %q", got, path)
	}
}

func TestCloseEndsAReportThatNobodyReads(t *testing.T) {
	w := start(time.Microsecond, slog.New(slog.DiscardHandler), func() (*fsnotify.Watcher, error) {
		return nil, syscall.EMFILE
	})
	next(t, w)
	w.Close()
}
