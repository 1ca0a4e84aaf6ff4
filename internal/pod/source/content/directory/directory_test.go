package directory

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/source/content"
)

// patience limits waits. Without a failure none takes that long.
const patience = 20 * time.Second

// discard is a Sink that ignores everything.
type discard struct{}

func (discard) Put(string, content.Wanted, []content.Problem, time.Time) {}

func (discard) Drop(string, time.Time) {}

func (discard) List(string, object.Directory) {}

// The close of a file can arrive while everything is read again.
func TestHearsACloseBehindASwap(t *testing.T) {
	dir := t.TempDir()
	web := filepath.Join(dir, "web.yaml")
	write(t, web, manifestOf("web", "app:1"))
	d := New(Options{Path: dir, NodeName: "node", Period: time.Hour, Log: slog.New(slog.DiscardHandler)}, discard{})
	events := d.at.start()
	t.Cleanup(d.at.end)
	d.refresh(time.Now(), true, func() {})
	next := func(done func() bool) {
		t.Helper()
		for timeout := time.After(patience); !done(); {
			select {
			case batch := <-events:
				d.handle(batch, time.Now(), func() {})
			case <-timeout:
				t.Fatal("an event was lost")
			}
		}
	}

	f, err := os.OpenFile(web, os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	next(func() bool { return !d.files[web].writing.IsZero() })
	must(t, os.Symlink("nowhere", filepath.Join(dir, "..data")))
	_, err = f.WriteString(manifestOf("db", "db:1"))
	must(t, err)
	must(t, f.Close())
	next(func() bool {
		pods := d.files[web].wanted.Pods
		return len(pods) == 1 && pods[0].Name == "db-node"
	})
}

// The periodic check reads a file again only if it has changed, also when no event says so.
func TestReadsChangedFilesOnly(t *testing.T) {
	dir := t.TempDir()
	web := filepath.Join(dir, "web.yaml")
	write(t, web, manifestOf("web", "app:1"))
	d := New(Options{Path: dir, NodeName: "node", Period: time.Hour, Log: slog.New(slog.DiscardHandler)}, discard{})
	check := func(now time.Time, unchanged bool, name string) {
		t.Helper()
		at, err := d.at.survey(nil)
		must(t, err)
		f := d.files[web]
		if got := f.unchanged(web, at.dir, now); got != unchanged {
			t.Errorf("unchanged: %v, want %v", got, unchanged)
		}
		d.refresh(now, false, func() {})
		if f.wanted.Pods[0].Name != name {
			t.Errorf("wants pod %s, want %s", f.wanted.Pods[0].Name, name)
		}
	}
	d.refresh(time.Now(), true, func() {})
	check(time.Now(), false, "web-node") // it may change within one step of the clock
	later := time.Now().Add(time.Minute)
	check(later, false, "web-node")
	check(later, true, "web-node")
	write(t, web, manifestOf("app", "app:1")) // the same size
	check(later, false, "app-node")
	check(later, true, "app-node")
	must(t, os.Rename(web, web+"~"))
	must(t, os.WriteFile(web, []byte(manifestOf("new", "app:1")), 0o644))
	check(later, false, "new-node")
}

// A file that was removed counts as missing sooner than one that an editor has moved away. Neither does at once.
func TestMissingFilesAreWaitedFor(t *testing.T) {
	dir := t.TempDir()
	d := New(Options{Path: dir, NodeName: "node", Period: time.Hour, Log: slog.New(slog.DiscardHandler)}, discard{})
	removed, moved := filepath.Join(dir, "removed.yaml"), filepath.Join(dir, "moved.yaml")
	write(t, removed, manifestOf("removed", "app:1"))
	write(t, moved, manifestOf("moved", "app:1"))
	events := d.at.start()
	t.Cleanup(d.at.end)
	now := time.Now()
	d.refresh(now, true, func() {})
	must(t, os.Remove(removed))
	must(t, os.Rename(moved, moved+"~"))
	for timeout := time.After(patience); d.files[removed].due.IsZero() || d.files[moved].due.IsZero(); {
		select {
		case batch := <-events:
			d.handle(batch, now, func() {})
		case <-timeout:
			t.Fatal("an event was lost")
		}
	}
	for after, want := range map[time.Duration][]string{
		unlinkTime - 1: {removed, moved}, unlinkTime: {moved}, settleTime - 1: {moved}, settleTime: nil,
	} {
		later := New(Options{Path: dir, NodeName: "node", Period: time.Hour}, discard{})
		for path, f := range d.files {
			kept := *f
			later.files[path] = &kept
		}
		later.lookDue(now.Add(after), func() {})
		if got := slices.Sorted(maps.Keys(later.files)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("after %v: %v, want %v", after, got, want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func manifestOf(name, image string) string {
	return fmt.Sprintf(
		"apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers: [{name: app, image: %s}]\n", name, image)
}
