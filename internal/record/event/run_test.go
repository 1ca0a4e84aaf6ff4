package event

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/logtest"
	"github.com/berth-run/berth/internal/base/looptest"
)

// running starts a recorder on dir. stop ends it and waits.
func running(t *testing.T, o Options) (r *Recorder, stop func()) {
	t.Helper()
	r = New(o)
	return r, looptest.Start(t, r.Run, nil)
}

func journalText(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, journalName))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

func TestEventsSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "events")
		r, stop := running(t, Options{Dir: dir})
		for i := range similarMax + 2 {
			r.Event(ref("a"), "Warning", "Unhealthy", "port %d", i)
		}
		r.Event(ref("b"), "Normal", "Started", "started")
		before, rev := r.List(Filter{})
		stop()

		r, stop = running(t, Options{Dir: dir})
		synctest.Wait()
		after, again := r.List(Filter{})
		if diff := cmp.Diff(before, after); diff != "" {
			t.Error(diff)
		}
		if again != rev {
			t.Errorf("revision %d after the restart, was %d", again, rev)
		}
		r.Event(ref("b"), "Normal", "Started", "started")
		r.Event(ref("a"), "Warning", "Unhealthy", "port 99")
		got := list(r, Filter{})
		for i, want := range []string{"started 2", combinedPrefix + "port 99 3"} {
			b := got[len(got)-2+i]
			if have := fmt.Sprint(b.Message, " ", b.Count); have != want {
				t.Errorf("event %q, want %q", have, want)
			}
		}
		stop()
	})
}

func TestEventsBeforeRunAreMergedWithOldOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r, stop := running(t, Options{Dir: dir})
		r.Event(ref("a"), "Normal", "Started", "started")
		stop()

		time.Sleep(time.Minute)
		r = New(Options{Dir: dir})
		r.Event(ref("a"), "Normal", "Started", "started")
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		if err := r.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if got := list(r, Filter{}); len(got) != 1 || got[0].Count != 2 {
			t.Errorf("events %+v, want one with count 2", got)
		}
		r, stop = running(t, Options{Dir: dir})
		synctest.Wait()
		if got := list(r, Filter{}); len(got) != 1 || got[0].Count != 2 {
			t.Errorf("events on disk %+v, want one with count 2", got)
		}
		stop()
	})
}

func TestEventsAreOnDiskAfterTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r, stop := running(t, Options{Dir: dir, Delay: 700 * time.Millisecond})
		r.Event(ref("a"), "Normal", "Created", "one")
		r.Event(ref("a"), "Normal", "Started", "two")
		synctest.Wait()
		if text := journalText(t, dir); text != "" {
			t.Errorf("written at once: %s", text)
		}
		time.Sleep(701 * time.Millisecond)
		synctest.Wait()
		if n := strings.Count(journalText(t, dir), "\n"); n != 2 {
			t.Errorf("%d lines after the delay, want 2", n)
		}
		stop()
	})
}

func TestDamagedJournal(t *testing.T) {
	good := `{"seq":1,"rev":1,"ref":{"kind":"Pod","name":"a"},"type":"Normal","reason":"Started","message":"m",` +
		`"count":1,"first":"2026-03-01T12:00:00Z","last":"2026-03-01T12:00:00Z"}`
	other := strings.ReplaceAll(strings.ReplaceAll(good, `"a"`, `"b"`), ":1,", ":2,")
	tests := []struct {
		name, text string
		want       int
		skipped    int
	}{
		{"empty", "", 0, 0},
		{"whole", good + "\n" + other + "\n", 2, 0},
		{"torn last line", good + "\n" + other[:50], 1, 1},
		{"whole but for the newline", good + "\n" + other, 1, 1},
		{"garbage inside", good + "\n\x00\x00{\xff\n" + other + "\n", 2, 1},
		{"no event", "{}\n[]\n" + good + "\n", 1, 2},
		{"a line without end", good + "\n" + strings.Repeat("x", maxLine+1) + "\n" + other + "\n", 2, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, journalName), []byte(tt.text), 0o600); err != nil {
					t.Fatal(err)
				}
				var said logtest.Lines
				r, stop := running(t, Options{Dir: dir, Log: said.Logger()})
				synctest.Wait()
				if got := list(r, Filter{}); len(got) != tt.want {
					t.Errorf("%d events, want %d: %+v", len(got), tt.want, got)
				}
				r.Event(ref("new"), "Normal", "Started", "m")
				stop()
				complaints := min(tt.skipped, 1)
				if said.Count("level=WARN") != complaints ||
					said.Count(fmt.Sprint("lines=", tt.skipped)) != complaints {
					t.Errorf("want %d lines skipped, said %q", tt.skipped, said.String())
				}

				said = logtest.Lines{}
				r, stop = running(t, Options{Dir: dir, Log: said.Logger()})
				synctest.Wait()
				if got := list(r, Filter{}); len(got) != tt.want+1 || said.String() != "" {
					t.Errorf("after the repair %d events, said %q", len(got), said.String())
				}
				stop()
			})
		})
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add(
		[]byte(
			`{"seq":1,"rev":2,"ref":{"kind":"Pod"},"reason":"Started","message":"m","count":3,` +
				`"first":"2026-03-01T12:00:00Z","last":"2026-03-01T12:00:00Z"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, ok := parseLine(text)
		if !ok {
			return
		}
		var again bytes.Buffer
		if err := writeLines(&again, []content{c}); err != nil {
			return // a year that JSON cannot hold
		}
		d, ok := parseLine(again.Bytes())
		if diff := cmp.Diff(c, d, cmp.AllowUnexported(content{}, group{}, groupKey{})); !ok || diff != "" {
			t.Fatalf("%q: %v %s", again.String(), ok, diff)
		}
	})
}

func TestJournalStaysSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r, stop := running(t, Options{Dir: dir, Max: 5})
		synctest.Wait()
		for i := range 100 {
			r.Event(ref("a"), "Normal", "Started", "started")
			r.Event(ref(fmt.Sprint("pod-", i)), "Normal", "Started", "started")
			time.Sleep(2 * time.Second)
			if n := strings.Count(journalText(t, dir), "\n"); n > 10 {
				t.Fatalf("%d lines for 5 events", n)
			}
		}
		want := list(r, Filter{})
		stop()
		r, stop = running(t, Options{Dir: dir, Max: 5})
		synctest.Wait()
		if diff := cmp.Diff(want, list(r, Filter{})); diff != "" {
			t.Error(diff)
		}
		stop()
	})
}

// A file in the place of the directory simulates a disk that refuses writes.
func TestDiskRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "events")
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var said logtest.Lines
		r, stop := running(t, Options{Dir: dir, Log: said.Logger()})
		synctest.Wait()
		for i := range 5 {
			r.Event(ref("a"), "Normal", "Started", "start %d", i)
			time.Sleep(time.Minute)
		}
		if n := said.Count("held in memory until a retry succeeds"); n != 1 {
			t.Errorf("%d warnings: %s", n, said.String())
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := strings.Count(journalText(t, dir), "\n"); n != 5 {
			t.Errorf("%d lines after the disk accepts them, want 5", n)
		}
		if n := said.Count("written to disk again"); n != 1 {
			t.Errorf("said %s", said.String())
		}
		stop()
	})
}

// A full disk cuts off a write in the middle of a line.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 56<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	var said logtest.Lines
	r := New(Options{Dir: dir, Log: said.Logger()})
	w := writer{Recorder: r, journal: journal{path: filepath.Join(dir, journalName)}}
	for i := range 40 {
		r.Event(ref(fmt.Sprint("pod-", i)), "Normal", "Started", "started")
	}
	w.flush()
	w.flush()
	if text := journalText(t, dir); text != "" || said.Count("no space left on device") != 1 {
		t.Errorf("on the full disk: %q, said %s", text, said.String())
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	w.flush()
	again := journal{path: w.journal.path}
	events, bad, err := again.read()
	if len(events) != 40 || bad != 0 || err != nil {
		t.Errorf("once there is room: %d events, %d bad lines, %v", len(events), bad, err)
	}
	if err := w.journal.close(); err != nil {
		t.Error(err)
	}
}

// While nothing happens, only the end of the context ends the wait.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), day)
		defer cancel()
		begin := time.Now()
		w := writer{Recorder: New(Options{Dir: t.TempDir()})}
		if w.pace.Wait(ctx, w.dirty.C(), w.delay) || time.Since(begin) != day {
			t.Errorf("woke up after %s", time.Since(begin))
		}
	})
}
