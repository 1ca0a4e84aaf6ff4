package event

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// clock is a clock that tests set.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func ref(name string) corev1.ObjectReference {
	return PodRef(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7",
	}})
}

// brief holds the fields of an event that most tests compare.
type brief struct {
	Object, Reason, Message string
	Count                   int32
	First, Last             time.Duration // after start
}

func briefs(events []corev1.Event) []brief {
	var all []brief
	for _, e := range events {
		all = append(all, brief{e.InvolvedObject.Name, e.Reason, e.Message, e.Count,
			e.FirstTimestamp.Sub(start), e.LastTimestamp.Sub(start)})
	}
	return all
}

func list(r *Recorder, f Filter) []brief {
	events, _ := r.List(f)
	return briefs(events)
}

func TestObject(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u1", ResourceVersion: "9"}}
	p.Spec.InitContainers = []corev1.Container{{Name: "setup"}}
	c, _ := pod.FindContainer(p, "setup")
	r := New(Options{Host: "node-1", Now: (&clock{start}).now})
	r.Event(ContainerRef(p, c), corev1.EventTypeWarning, "Failed", "no image %q", "app:1")

	got, rev := r.List(Filter{})
	want := []corev1.Event{{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Name:              fmt.Sprintf("web.%x", start.UnixMicro()),
			Namespace:         "ns",
			ResourceVersion:   fmt.Sprint(start.UnixMicro()),
			CreationTimestamp: metav1.NewTime(start),
		},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Namespace: "ns", Name: "web", UID: "u1",
			FieldPath: "spec.initContainers{setup}",
		},
		Type:                "Warning",
		Reason:              "Failed",
		Message:             `no image "app:1"`,
		Source:              corev1.EventSource{Component: "berth", Host: "node-1"},
		FirstTimestamp:      metav1.NewTime(start),
		LastTimestamp:       metav1.NewTime(start),
		Count:               1,
		ReportingController: "berth",
		ReportingInstance:   "node-1",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if rev != uint64(start.UnixMicro()) {
		t.Errorf("revision %d", rev)
	}
}

func TestMergeAndOrder(t *testing.T) {
	c := &clock{start}
	r := New(Options{Now: c.now})
	r.Event(ref("a"), "Normal", "Started", "started")
	r.Event(ref("b"), "Normal", "Started", "started")
	c.t = start.Add(time.Hour)
	r.Event(ref("a"), "Normal", "Started", "started")
	r.Event(ref("a"), "Warning", "Started", "started")

	want := []brief{
		{"b", "Started", "started", 1, 0, 0},
		{"a", "Started", "started", 2, 0, time.Hour},
		{"a", "Started", "started", 1, time.Hour, time.Hour},
	}
	if diff := cmp.Diff(want, list(r, Filter{})); diff != "" {
		t.Error(diff)
	}
}

func TestCombine(t *testing.T) {
	c := &clock{start}
	r := New(Options{Now: c.now})
	say := func(i int) { r.Event(ref("a"), "Warning", "Unhealthy", "probe failed: port %d", i) }
	for i := range similarMax + 3 {
		say(i)
		c.t = c.t.Add(time.Second)
	}
	say(0)

	var want []brief
	for i := 1; i < similarMax; i++ {
		at := time.Duration(i) * time.Second
		want = append(want, brief{"a", "Unhealthy", fmt.Sprintf("probe failed: port %d", i), 1, at, at})
	}
	want = append(want,
		brief{"a", "Unhealthy", combinedPrefix + "probe failed: port 12", 3, 10 * time.Second, 12 * time.Second},
		brief{"a", "Unhealthy", "probe failed: port 0", 2, 0, 13 * time.Second})
	if diff := cmp.Diff(want, list(r, Filter{})); diff != "" {
		t.Error(diff)
	}

	c.t = c.t.Add(similarQuiet + 1)
	say(99)
	got := list(r, Filter{})
	if last := got[len(got)-1]; last.Message != "probe failed: port 99" {
		t.Errorf("after a quiet time: %+v", last)
	}
}

func TestRingForgetsTheOldest(t *testing.T) {
	r := New(Options{Now: (&clock{start}).now, Max: 3})
	for _, name := range []string{"a", "b", "c", "a", "d"} {
		r.Event(ref(name), "Normal", "Started", "started")
	}
	want := []brief{
		{"c", "Started", "started", 1, 0, 0},
		{"a", "Started", "started", 2, 0, 0},
		{"d", "Started", "started", 1, 0, 0},
	}
	if diff := cmp.Diff(want, list(r, Filter{})); diff != "" {
		t.Error(diff)
	}
	if len(r.ring.groups) != 3 || len(r.ring.texts) != 3 {
		t.Errorf("%d groups and %d texts are left of 3 events", len(r.ring.groups), len(r.ring.texts))
	}
}

func TestFilter(t *testing.T) {
	r := New(Options{Now: (&clock{start}).now})
	node := corev1.ObjectReference{Kind: "Node", Name: "node-1", UID: "node-1"}
	r.Event(node, "Warning", "CgroupV1", "old")
	r.Event(ref("a"), "Normal", "Started", "started")
	r.Event(ref("a"), "Warning", "Failed", "failed")
	r.Event(ref("b"), "Normal", "Started", "started")

	tests := []struct {
		name   string
		filter Filter
		want   []string // object/reason
	}{
		{"all", Filter{}, []string{"node-1/CgroupV1", "a/Started", "a/Failed", "b/Started"}},
		{"kind", Filter{Kind: "Node"}, []string{"node-1/CgroupV1"}},
		{"namespace", Filter{Namespace: "default", Type: "Normal"}, []string{"a/Started", "b/Started"}},
		{"uid and reason", Filter{UID: "uid-a", Reason: "Failed"}, []string{"a/Failed"}},
		{"name", Filter{Name: "b"}, []string{"b/Started"}},
		{"field path", Filter{FieldPath: "spec.containers{x}"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, b := range list(r, tt.filter) {
				got = append(got, b.Object+"/"+b.Reason)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if events, _ := r.List(Filter{Kind: "Node"}); events[0].Namespace != "default" {
		t.Errorf("a node's event lives in namespace %q", events[0].Namespace)
	}
}

func TestMessage(t *testing.T) {
	long := strings.Repeat("x", maxMessage-4) + "äää"
	tests := []struct {
		name, format string
		args         []any
		want         string
	}{
		{"no arguments, no format", "100%d", nil, "100%d"},
		{"arguments", "%d of %d", []any{1, 2}, "1 of 2"},
		{"not UTF-8", "a\xffb", nil, "a\uFFFDb"},
		{"too long, cut at a rune", long, nil, long[:maxMessage-4] + "..."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := New(Options{Now: (&clock{start}).now})
			r.Event(ref("a"), "Normal", "Test", tt.format, tt.args...)
			if diff := cmp.Diff([]brief{{"a", "Test", tt.want, 1, 0, 0}}, list(r, Filter{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := New(Options{})
		r.Event(ref("a"), "Normal", "Created", "before the list")
		_, rev := r.List(Filter{})
		r.Event(ref("a"), "Normal", "Pulled", "between list and watch")

		var got []corev1.Event
		var watchers sync.WaitGroup
		watchers.Go(func() {
			for e := range r.Watch(ctx, Filter{Name: "a"}, rev) {
				got = append(got, e)
			}
		})
		synctest.Wait()
		r.Event(ref("b"), "Normal", "Created", "of another pod")
		r.Event(ref("a"), "Normal", "Started", "while it watches")
		synctest.Wait()
		r.Event(ref("a"), "Normal", "Started", "while it watches")
		synctest.Wait()
		cancel()
		watchers.Wait()

		var seen []string
		for _, b := range briefs(got) {
			seen = append(seen, fmt.Sprint(b.Reason, " ", b.Count))
		}
		if diff := cmp.Diff([]string{"Pulled 1", "Started 1", "Started 2"}, seen); diff != "" {
			t.Error(diff)
		}
		if len(r.watchers) != 0 {
			t.Errorf("%d watchers are left", len(r.watchers))
		}
	})
}

func TestWatchStopsWhenTheReaderDoes(t *testing.T) {
	r := New(Options{})
	r.Event(ref("a"), "Normal", "Created", "one")
	for range r.Watch(t.Context(), Filter{}, 0) {
		break
	}
	if len(r.watchers) != 0 {
		t.Errorf("%d watchers are left", len(r.watchers))
	}
}

func BenchmarkEvent(b *testing.B) {
	refs := make([]corev1.ObjectReference, 100)
	for i := range refs {
		refs[i] = ref(fmt.Sprint("pod-", i))
	}
	b.Run("fresh", func(b *testing.B) {
		r := New(Options{})
		for i := 0; b.Loop(); i++ {
			r.Event(refs[i%len(refs)], "Normal", "Pulled", "pulled image %d", i)
		}
	})
	b.Run("repeat", func(b *testing.B) {
		r := New(Options{})
		for i := 0; b.Loop(); i++ {
			r.Event(refs[i%len(refs)], "Normal", "Started", "started container app")
		}
	})
}
