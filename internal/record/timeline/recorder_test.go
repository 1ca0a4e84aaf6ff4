package timeline

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
)

// tracing returns a recorder and a provider that sends it spans.
func tracing(t testing.TB, o RecorderOptions) (*Recorder, trace.TracerProvider) {
	t.Helper()
	r := NewRecorder(o)
	tp, shutdown, err := Provider(t.Context(), ProviderOptions{Recorder: r})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r, tp
}

func newPod(name string) *pod.Pod {
	return &pod.Pod{
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
			UID: types.UID("uid-" + name)}},
		Seen: time.Now(),
	}
}

// ignoreIDs ignores the fields that differ between runs.
var ignoreIDs = cmpopts.IgnoreFields(Span{}, "ID", "Parent")

// parents maps the name of each span to its parent's name.
func parents(line Timeline) map[string]string {
	names := map[string]string{"": ""}
	for _, s := range line.Spans {
		names[s.ID] = s.Name
	}
	all := map[string]string{}
	for _, s := range line.Spans {
		all[s.Name] = names[s.Parent]
	}
	return all
}

func TestChangedWakesWhenAStartBeginsAndEnds(t *testing.T) {
	r, tp := tracing(t, RecorderOptions{})
	changed := r.Changed().C()
	woken := func() bool {
		select {
		case <-changed:
			changed = r.Changed().C()
			return true
		default:
			return false
		}
	}
	ctx, _ := StartPod(t.Context(), tp, newPod("web"))
	if !woken() {
		t.Error("a start that begins wakes nobody")
	}
	_, step := Start(ctx, "sandbox")
	End(step, nil)
	if woken() {
		t.Error("a step wakes")
	}
	r.Finish("uid-web", nil)
	if !woken() {
		t.Error("a start that ends wakes nobody")
	}
}

func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, tp := tracing(t, RecorderOptions{})
		seen := time.Now()
		at := func(ms int) time.Time { return seen.Add(time.Duration(ms) * time.Millisecond) }
		p := newPod("web")
		time.Sleep(time.Millisecond)
		ctx, root := StartPod(t.Context(), tp, p)

		sandbox, step := Start(ctx, "sandbox")
		_, call := Start(sandbox, "RunPodSandbox", KindCRI.Attr(), attribute.Int("attempt", 2))
		done := Wait(ctx, "image app")
		time.Sleep(10 * time.Millisecond)
		done()
		err := reason.Wrap("FailedCreatePodSandBox", errors.New("no network"))
		End(call, err)
		End(step, fmt.Errorf("sandbox: %w", err))

		want := Timeline{
			Namespace: "default", Name: "web", UID: "uid-web", What: "pod start", Start: seen, Read: at(11),
			Spans: []Span{
				{Name: "pod start", Kind: KindStep, Start: seen},
				{Name: "sandbox", Kind: KindStep, Start: at(1), End: at(11), Err: "no network",
					Reason: "FailedCreatePodSandBox"},
				{
					Name: "RunPodSandbox", Kind: KindCRI, Start: at(1), End: at(11), Err: "no network",
					Reason: "FailedCreatePodSandBox",
					Attrs:  map[string]string{"attempt": "2"},
				},
				{Name: "image app", Kind: KindWait, Start: at(1), End: at(11)},
			},
		}
		got, _ := r.Get("uid-web")
		if diff := cmp.Diff(want, got, ignoreIDs); diff != "" {
			t.Error(diff)
		}
		wantParents := map[string]string{"pod start": "", "sandbox": "pod start", "RunPodSandbox": "sandbox",
			"image app": "pod start"}
		if diff := cmp.Diff(wantParents, parents(got)); diff != "" {
			t.Error(diff)
		}

		End(root, nil)
		want.End, want.Spans[0].End = at(11), at(11)
		if got, _ = r.Find("default", "web"); got.State() != StateReady {
			t.Errorf("state %s", got.State())
		}
		if diff := cmp.Diff(want, got, ignoreIDs); diff != "" {
			t.Error(diff)
		}
		want.Spans = nil
		if diff := cmp.Diff([]Timeline{want}, r.List()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRecordOnlyWhatBeganBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, tp := tracing(t, RecorderOptions{})
		ctx, root := StartPod(t.Context(), tp, newPod("web"))
		_, late := Start(ctx, "late")
		End(root, nil)
		_, after := Start(ctx, "after")
		End(after, nil)
		time.Sleep(time.Second)
		if len(r.open) != 1 {
			t.Errorf("%d timelines are open while a span goes on", len(r.open))
		}
		End(late, nil)

		got, _ := r.Get("uid-web")
		if diff := cmp.Diff(map[string]string{"pod start": "", "late": "pod start"}, parents(got)); diff != "" {
			t.Error(diff)
		}
		if took := got.Spans[1].End.Sub(got.Start); took != time.Second {
			t.Errorf("the late span ended after %s", took)
		}
		_, after = Start(ctx, "after all")
		End(after, nil)
		if len(r.open) != 0 {
			t.Errorf("%d timelines are open", len(r.open))
		}
	})
}

func TestSpansOfNoPod(t *testing.T) {
	r, tp := tracing(t, RecorderOptions{})
	ctx, root := tp.Tracer("test").Start(t.Context(), "request")
	_, child := Start(ctx, "child")
	End(child, nil)
	End(root, nil)

	ctx, span := Start(t.Context(), "without a parent")
	if span.IsRecording() || ctx != t.Context() {
		t.Error("a span without a parent is recorded")
	}
	End(span, errors.New("no span listens"))
	Wait(t.Context(), "nothing")()
	if got := r.List(); len(got) != 0 {
		t.Errorf("timelines %+v", got)
	}
}

func TestContextAndFinish(t *testing.T) {
	r, tp := tracing(t, RecorderOptions{})
	if ctx := r.Context(t.Context(), "uid-web"); ctx != t.Context() {
		t.Error("a pod without a timeline has one in its context")
	}
	StartPod(t.Context(), tp, newPod("web"))
	_, span := Start(r.Context(t.Context(), "uid-web"), "step")
	End(span, nil)
	r.Finish("uid-web", reason.New("Evicted", "no memory"))
	r.Finish("uid-web", nil)

	got, _ := r.Get("uid-web")
	if got.State() != StateFailed || got.Reason != "Evicted" || got.Err != "no memory" {
		t.Errorf("timeline %+v", got)
	}
	if diff := cmp.Diff(map[string]string{"pod start": "", "step": "pod start"}, parents(got)); diff != "" {
		t.Error(diff)
	}
	if wordless := (&Timeline{End: time.Unix(1, 0), Reason: "Failed"}); wordless.State() != StateFailed {
		t.Errorf("a failure without a message is %s", wordless.State())
	}
	if ctx := r.Context(t.Context(), "uid-web"); ctx != t.Context() {
		t.Error("the finished timeline is still in the context")
	}
}

func TestLatestOfAName(t *testing.T) {
	r, tp := tracing(t, RecorderOptions{})
	_, root := StartPod(t.Context(), tp, newPod("web"))
	End(root, nil)
	again := newPod("web")
	again.UID = "second"
	StartPod(t.Context(), tp, again)
	if got, ok := r.Find("default", "web"); !ok || got.UID != "second" {
		t.Errorf("found %+v", got)
	}
	if _, ok := r.Find("other", "web"); ok {
		t.Error("found a pod of another namespace")
	}
}

func TestEndlessTimelineIsBounded(t *testing.T) {
	r, tp := tracing(t, RecorderOptions{})
	ctx, _ := StartPod(t.Context(), tp, newPod("web"))
	for i := range 5 * maxSpans {
		_, span := Start(ctx, fmt.Sprint("try ", i))
		End(span, nil)
	}
	got, _ := r.Get("uid-web")
	if len(got.Spans)+got.Dropped != 5*maxSpans+1 || len(got.Spans) > maxSpans {
		t.Errorf("%d spans, %d dropped of %d", len(got.Spans), got.Dropped, 5*maxSpans+1)
	}
	if last := got.Spans[len(got.Spans)-1].Name; last != fmt.Sprint("try ", 5*maxSpans-1) {
		t.Errorf("the last span is %q", last)
	}

	spans := make([]trace.Span, 2*maxSpans)
	for i := range spans {
		_, spans[i] = Start(ctx, "at once")
	}
	if got, _ = r.Get("uid-web"); len(got.Spans) > maxSpans {
		t.Errorf("%d spans that have not ended", len(got.Spans))
	}
	for _, s := range spans {
		End(s, nil)
	}
	r.Finish("uid-web", nil)
	if len(r.open) != 0 {
		t.Error("the timeline is still open")
	}
}

// BenchmarkPodStart measures the cost of a pod's spans: a root and 30 below it.
func BenchmarkPodStart(b *testing.B) {
	const spans = 30
	bench := func(b *testing.B, tp trace.TracerProvider, finish func()) {
		b.ReportAllocs()
		p := newPod("web")
		for b.Loop() {
			ctx, root := StartPod(b.Context(), tp, p)
			for range spans / 3 {
				step, outer := Start(ctx, "step")
				_, call := Start(step, "RunPodSandbox", KindCRI.Attr())
				Wait(step, "image app")()
				End(call, nil)
				End(outer, nil)
			}
			End(root, nil)
			finish()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(spans+1), "ns/span")
	}
	b.Run("recorded", func(b *testing.B) {
		_, tp := tracing(b, RecorderOptions{})
		bench(b, tp, func() {})
	})
	b.Run("sdk alone", func(b *testing.B) {
		tp, _, err := Provider(b.Context(), ProviderOptions{})
		if err != nil {
			b.Fatal(err)
		}
		bench(b, tp, func() {})
	})
	b.Run("recorded and settled", func(b *testing.B) {
		r, tp := tracing(b, RecorderOptions{})
		w := writer{Recorder: r}
		bench(b, tp, w.flush)
	})
}

func TestLastHasTheLatestStartsWithTheirSpans(t *testing.T) {
	r, tp := tracing(t, RecorderOptions{})
	for _, name := range []string{"a", "b", "c"} {
		ctx, root := StartPod(t.Context(), tp, newPod(name))
		_, span := Start(ctx, "admission")
		End(span, nil)
		if name != "c" { // the last one is still open
			End(root, nil)
		}
	}
	for n, want := range map[int][]string{1: {"c"}, 2: {"b", "c"}, 99: {"a", "b", "c"}} {
		var got []string
		for _, line := range r.Last(n) {
			got = append(got, line.Name)
			if len(line.Spans) != 2 || line.Spans[1].Name != "admission" {
				t.Errorf("last %d: %s has the spans %+v", n, line.Name, line.Spans)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("last %d (-want +got):\n%s", n, diff)
		}
	}
}
