package timeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/base/logtest"
	"github.com/berth-run/berth/internal/base/looptest"
)

// start runs a recorder. stop ends it and waits.
func start(t *testing.T, r *Recorder) (stop func()) {
	t.Helper()
	stop = looptest.Start(t, r.Run, nil)
	synctest.Wait()
	return stop
}

func files(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return len(entries)
}

func TestTimelinesSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "timelines")
		r, tp := tracing(t, RecorderOptions{Dir: dir})
		stop := start(t, r)
		ctx, root := StartPod(t.Context(), tp, newPod("ready"))
		_, step := Start(ctx, "sandbox", KindCRI.Attr())
		time.Sleep(time.Millisecond)
		End(step, errors.New("try again"))
		End(root, nil)
		time.Sleep(time.Hour)
		stop()
		want, _ := r.Get("uid-ready")
		if len(want.Spans) != 2 || r.trails[0].spans != nil {
			t.Errorf("a settled timeline keeps %d spans as it read them: %+v", len(r.trails[0].spans), want)
		}

		r = NewRecorder(RecorderOptions{Dir: dir})
		stop = start(t, r)
		got, _ := r.Find("default", "ready")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		stop()
	})
}

func TestKilledAgentLeavesAnInterruptedTimeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r, tp := tracing(t, RecorderOptions{Dir: dir})
		stop := start(t, r)
		begin := time.Now()
		StartPod(t.Context(), tp, newPod("slow"))
		time.Sleep(time.Second + 1) // just over a second: the longest promised delay until a span is on disk

		after := NewRecorder(RecorderOptions{Dir: dir})
		stopAfter := start(t, after)
		got, _ := after.Get("uid-slow")
		if got.State() != StateInterrupted || got.Read.Sub(begin) > time.Second || len(got.Spans) != 1 {
			t.Errorf("timeline %+v", got)
		}
		stopAfter()
		stop()
	})
}

func TestOldTimelinesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r, tp := tracing(t, RecorderOptions{Dir: dir, Max: 3})
		stop := start(t, r)
		for i := range 8 {
			_, root := StartPod(t.Context(), tp, newPod(fmt.Sprint("pod-", i)))
			End(root, nil)
			time.Sleep(time.Duration(i%3)*time.Second + 1) // some are removed before they were written
		}
		stop()
		if n := files(t, dir); n != 3 {
			t.Errorf("%d files, want 3", n)
		}
		r = NewRecorder(RecorderOptions{Dir: dir, Max: 2})
		stop = start(t, r)
		var names []string
		for _, line := range r.List() {
			names = append(names, line.Name)
		}
		if diff := cmp.Diff([]string{"pod-6", "pod-7"}, names); diff != "" {
			t.Error(diff)
		}
		stop()
		if n := files(t, dir); n != 2 {
			t.Errorf("%d files, want 2", n)
		}
	})
}

func TestDamagedFiles(t *testing.T) {
	id := strings.Repeat("0a", 16)
	good := `{"version":1,"timeline":{"namespace":"ns","name":"p","uid":"u","start":"2026-03-01T12:00:00Z",` +
		`"end":"2026-03-01T12:00:01Z","spans":[{"id":"1","name":"pod start"}]}}`
	tests := []struct {
		name, file, text string
		timelines        int
		kept             int
		says             string
	}{
		{"good", id + ".json", good, 1, 1, ""},
		{"torn", id + ".json", good[:40], 0, 0, "unexpected end of JSON"},
		{"empty", id + ".json", "", 0, 0, "unexpected end of JSON"},
		{"no spans", id + ".json", `{"version":1,"timeline":{"uid":"u"}}`, 0, 0, "not a timeline"},
		{"of a later version", id + ".json", strings.Replace(good, ":1,", ":2,", 1), 0, 0,
			"not a timeline of version 1"},
		{"cut off while written", id + ".json.tmp", good, 0, 0, ""},
		{"not ours", "README.txt", "hello", 0, 1, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, tt.file), []byte(tt.text), 0o600); err != nil {
					t.Fatal(err)
				}
				var said logtest.Lines
				r := NewRecorder(RecorderOptions{Dir: dir, Log: said.Logger()})
				start(t, r)()
				if n := len(r.List()); n != tt.timelines {
					t.Errorf("%d timelines, want %d", n, tt.timelines)
				}
				if n := files(t, dir); n != tt.kept {
					t.Errorf("%d files left, want %d", n, tt.kept)
				}
				if !strings.Contains(said.String(), tt.says) || (tt.says == "") != (said.String() == "") {
					t.Errorf("said %q, want %q", said.String(), tt.says)
				}
			})
		})
	}
}

// A file in the place of the directory simulates a disk that refuses writes.
func TestDiskRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "timelines")
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var said logtest.Lines
		r, tp := tracing(t, RecorderOptions{Dir: dir, Log: said.Logger()})
		stop := start(t, r)
		for i := range 5 {
			_, root := StartPod(t.Context(), tp, newPod(fmt.Sprint("pod-", i)))
			End(root, nil)
			time.Sleep(time.Minute)
		}
		if n := said.Count("held in memory until a retry succeeds"); n != 1 || len(r.List()) != 5 {
			t.Errorf("%d timelines, said %s", len(r.List()), said.String())
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if n := files(t, dir); n != 5 || said.Count("written to disk again") != 1 {
			t.Errorf("%d files after the disk accepts them, said %s", n, said.String())
		}
		stop()
	})
}

// While nothing happens, only the end of the context ends the wait.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), day)
		defer cancel()
		begin := time.Now()
		w := writer{Recorder: NewRecorder(RecorderOptions{Dir: t.TempDir()})}
		if w.pace.Wait(ctx, w.dirty.C(), w.delay) || time.Since(begin) != day {
			t.Errorf("woke up after %s", time.Since(begin))
		}
	})
}
