package aside

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/record/crash"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestAfterGrowsAndStartsOver(t *testing.T) {
	count, last, now := 0, time.Time{}, t0
	var got []time.Duration
	for range 11 {
		var until time.Time
		count, until = after(count, last, now)
		got = append(got, until.Sub(now))
		last, now = now, until
	}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}
	for i := range want {
		want[i] *= time.Second
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
	if count, until := after(count, now, now.Add(calmAfter+1)); count != 1 || until.Sub(now) != calmAfter+1+firstDelay {
		t.Errorf("after a calm time: %d panics, next try at %v", count, until)
	}
}

func TestSuspects(t *testing.T) {
	at := func(uid string, seconds ...int) (all []crash.Report) {
		for _, s := range seconds {
			all = append(all, crash.Report{Time: t0.Add(time.Duration(s) * time.Second), Subject: "pod a/b uid=" + uid})
		}
		return all
	}
	tests := []struct {
		name    string
		reports []crash.Report
		now     int // seconds after t0
		until   int // seconds after t0; 0: not set aside
	}{
		{"two in a minute", at("u", 0, 30), 31, 0},
		{"three in a minute", at("u", 0, 30, 60), 61, 120},
		{"three in more than a minute", at("u", 0, 30, 61), 62, 0},
		{"the delay is over", at("u", 0, 30, 60), 120, 0},
		{"a fourth doubles the delay", at("u", 0, 30, 60, 121), 122, 241},
		{"a fifth", at("u", 0, 30, 60, 121, 242), 243, 482},
		{"out of order", at("u", 60, 0, 30), 61, 120},
		{"of two pods", append(at("u", 0, 30), at("v", 40)...), 61, 0},
		{"of no pod", []crash.Report{{Time: t0}, {Time: t0}, {Time: t0}}, 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := 0
			for _, s := range suspects(tt.reports, t0.Add(time.Duration(tt.now)*time.Second)) {
				got = int(s.until.Sub(t0).Seconds())
			}
			if got != tt.until {
				t.Errorf("set aside until %d s, want %d", got, tt.until)
			}
		})
	}
}
