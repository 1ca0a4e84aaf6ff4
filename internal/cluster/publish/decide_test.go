package publish

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestOrder(t *testing.T) {
	queue := map[key]*entry{}
	put := func(name string, c class, since uint64, due time.Duration) {
		queue[key{"default",
			name}] = &entry{event: corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}},
			class: c, since: since, due: t0.Add(due)}
	}
	put("repeat-old", repeat, 1, 0)
	put("repeat-late", repeat, 2, time.Hour)
	put("normal-new", normal, 9, 0)
	put("normal-old", normal, 3, 0)
	put("warning", warning, 8, 0)
	var sent []string
	for {
		e, at := next(queue, t0)
		if e == nil {
			if want := t0.Add(time.Hour); !at.Equal(want) {
				t.Errorf("next at %s, want %s", at, want)
			}
			break
		}
		sent = append(sent, e.event.Name)
		delete(queue, key{"default", e.event.Name})
	}
	if diff := cmp.Diff([]string{"warning", "normal-old", "normal-new", "repeat-old"}, sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}

	put("warning", warning, 1, 0)
	put("normal-old", normal, 3, 0)
	put("normal-new", normal, 9, 0)
	put("repeat-old", repeat, 1, 0)
	var dropped []string
	for len(queue) > 0 {
		e := victim(queue)
		dropped = append(dropped, e.event.Name)
		delete(queue, key{"default", e.event.Name})
	}
	if diff := cmp.Diff([]string{"repeat-old", "repeat-late", "normal-old", "normal-new", "warning"},
		dropped); diff != "" {
		t.Errorf("dropped (-want +got):\n%s", diff)
	}
}

func TestKnownForgetsTheOldest(t *testing.T) {
	s := known{max: 8}
	name := func(i int) key { return key{"n", strconv.Itoa(i)} }
	for i := range 100 {
		s.put(name(i), history{patches: i})
		for j := range i + 1 {
			h, ok := s.find(name(j))
			if ok && h.patches != j || !ok && j > i-s.max/2 || ok && j <= i-s.max {
				t.Fatalf("after %d events, event %d has history %v, found %v", i+1, j, h, ok)
			}
		}
	}
	s.put(name(97), history{patches: 1})
	s.put(name(99), history{patches: 2})
	for i, want := range map[int]int{97: 1, 99: 2} {
		if h, _ := s.find(name(i)); h.patches != want {
			t.Errorf("event %d has %d patches, want %d", i, h.patches, want)
		}
	}
}

func TestDistances(t *testing.T) {
	const s = time.Second
	got := []time.Duration{distance(0), distance(1), distance(8), distance(9), distance(1000), delay(1, 0), delay(1, 1),
		delay(1000, 1)}
	want := []time.Duration{s, 2 * s, 256 * s, lastRepeat, lastRepeat, firstRetry / 2, firstRetry, lastRetry}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRender(t *testing.T) {
	long := strings.Repeat("a", 240) + "-"
	e := corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: long + strings.Repeat("b", 12) + ".1234567890abc",
		Namespace: "n", ResourceVersion: "7",
		CreationTimestamp: metav1.NewTime(t0)}, Reason: "Started"}
	want := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a", 239) + ".1234567890abc",
		Namespace: "n"}, Reason: "Started"}
	if diff := cmp.Diff(want, render(e)); diff != "" {
		t.Error(diff)
	}
}
