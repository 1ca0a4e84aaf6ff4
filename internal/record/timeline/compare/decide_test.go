package compare

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/record/timeline"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const ms = time.Millisecond

func at(after time.Duration) time.Time { return t0.Add(after) }

// start returns a start of so many milliseconds with two containers that overlap.
func start(name string, took time.Duration) timeline.Timeline {
	return timeline.Timeline{Namespace: "default", Name: name, Start: t0, End: at(took), Spans: []timeline.Span{
		{ID: "1", Name: "pod start", Start: t0, End: at(took)},
		{ID: "2", Parent: "1", Name: "sandbox", Start: t0, End: at(took / 2)},
		{ID: "3", Parent: "2", Name: "RunPodSandbox", Kind: timeline.KindCRI, Start: t0, End: at(took / 4)},
		{ID: "4", Parent: "1", Name: "container app", Start: at(10 * ms), End: at(20 * ms)},
		{ID: "5", Parent: "1", Name: "container side", Start: at(15 * ms), End: at(30 * ms)},
		{ID: "6", Parent: "4", Name: "image app", Kind: timeline.KindWait, Start: at(10 * ms), End: at(11 * ms)},
		{ID: "7", Parent: "1", Name: "probe", Start: at(20 * ms)},
	}}
}

func TestStartsAfterOneStart(t *testing.T) {
	one := func(name string, level int, took time.Duration) Step {
		return Step{name, level, 1, took, took, Start{"default", "web", t0, took}}
	}
	want := Comparison{Starts: 1, Ready: 1, Steps: []Step{
		one("pod start", 0, 100*ms), one("sandbox", 1, 50*ms), one("RunPodSandbox", 2, 25*ms),
		one("container", 1, 20*ms), one("wait for image", 2, ms), one("probe", 1, 80*ms),
	}}
	lines := []timeline.Timeline{start("web", 100*ms)}
	if diff := cmp.Diff(want, Starts(lines, 0)); diff != "" {
		t.Errorf("all levels (-want +got):\n%s", diff)
	}
	want.Steps = []Step{want.Steps[0], want.Steps[1], want.Steps[3], want.Steps[5]}
	if diff := cmp.Diff(want, Starts(lines, 1)); diff != "" {
		t.Errorf("one level (-want +got):\n%s", diff)
	}
}

func TestStartsOfManyAndOfFailedOnes(t *testing.T) {
	var lines []timeline.Timeline
	for i := range 100 {
		lines = append(lines, start(fmt.Sprintf("web-%d", i+1), time.Duration(i+1)*ms))
	}
	failed := start("broken", time.Hour)
	failed.Err = "image not found"
	open := start("new", 0)
	open.End = time.Time{}
	got := Starts(append(lines, failed, open), 1)
	want := Step{Name: "pod start", Starts: 100, P50: 50 * ms, P99: 99 * ms,
		Slowest: Start{"default", "web-100", t0, 100 * ms}}
	if got.Starts != 102 || got.Ready != 100 || len(got.Steps) == 0 {
		t.Fatalf("%+v", got)
	}
	if diff := cmp.Diff(want, got.Steps[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStartsOfNone(t *testing.T) {
	if diff := cmp.Diff(Comparison{}, Starts(nil, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A timeline from a damaged file, and one whose spans were dropped to limit its size.
func TestStartsOfDamagedTimeline(t *testing.T) {
	line := start("web", 100*ms)
	line.Spans = append(line.Spans, line.Spans[1],
		timeline.Span{ID: "9", Parent: "gone", Name: "orphan", Start: t0, End: at(ms)},
		timeline.Span{ID: "10", Parent: "10", Name: "loop", Start: at(200 * ms), End: at(300 * ms)})
	for _, s := range Starts([]timeline.Timeline{line}, 0).Steps {
		if s.Name == "orphan" && s.Level == 1 && s.P50 == ms {
			return
		}
	}
	t.Error("a span without its parent is lost")
}
