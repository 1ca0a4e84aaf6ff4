package eviction

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStandings(t *testing.T) {
	const mi = 1 << 20
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	hard := Threshold{Signal: MemoryAvailable, Value: Amount{Quantity: 100 * mi}}
	soft := Threshold{Signal: MemoryAvailable, Value: Amount{Share: 0.5}, Grace: time.Minute}
	seen := Observations{
		MemoryAvailable: {Available: 180 * mi, Capacity: 400 * mi, At: start.Add(10 * time.Second)},
		PIDAvailable:    {Available: 5, Capacity: 10, At: start},
	}
	for name, test := range map[string]struct {
		earlier Observation
		trend   float64
	}{
		"first look":       {},
		"falls by 20 Mi/s": {earlier: Observation{Available: 380 * mi, At: start}, trend: -20 * mi},
		"rises by 2 Mi/s":  {earlier: Observation{Available: 160 * mi, At: start}, trend: 2 * mi},
		"too close":        {earlier: Observation{Available: 9, At: start.Add(9900 * time.Millisecond)}},
	} {
		got := Standings([]Threshold{soft, hard}, seen, func(Signal) Observation { return test.earlier })
		want := []Standing{{Signal: MemoryAvailable, Seen: seen[MemoryAvailable], Trend: test.trend,
			Limits: []Limit{{hard, 100 * mi, false}, {soft, 200 * mi, true}}}}
		if test.trend != 0 {
			want[0].Since = test.earlier.At
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Amount{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The look that a trend begins at is at least trendSpan old, if there was one so long ago.
func TestHistory(t *testing.T) {
	var h history
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i := range 100 {
		h.add(Observations{PIDAvailable: {Available: int64(i), At: start.Add(time.Duration(i) * time.Second)}})
		want := int64(max(0, i/10*10-10))
		if got := h.earlier(PIDAvailable).Available; got != want {
			t.Errorf("after %d s: a look at %d s, want %d s", i, got, want)
		}
	}
	if got := h.earlier(MemoryAvailable); got != (Observation{}) {
		t.Errorf("a signal without a look: %+v", got)
	}
}

func TestOrder(t *testing.T) {
	all := []Candidate{{Pod: aPod("small"), Known: true, Usage: 5}, {Pod: aPod("critical"), Known: true, Usage: 99,
		Critical: true}, {Pod: aPod("big"), Known: true, Usage: 50}}
	for name, test := range map[string]struct {
		available int64
		victims   []string
	}{
		"enough is free":          {available: 100, victims: []string{}},
		"one pod is enough":       {available: 70, victims: []string{"big"}},
		"all of them are too few": {available: 1, victims: []string{"big", "small"}},
	} {
		threshold := Threshold{Signal: MemoryAvailable, Value: Amount{Quantity: 100}}
		standing := Standings([]Threshold{threshold}, Observations{MemoryAvailable: {Available: test.available,
			Capacity: 1000}}, func(Signal) Observation { return Observation{} })[0]
		got := standing.Order(all, time.Time{})
		if diff := cmp.Diff([]string{"big", "small"}, names(got.Ranked)); diff != "" {
			t.Errorf("%s: order (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff([]string{"critical"}, names(got.Critical)); diff != "" {
			t.Errorf("%s: critical pods (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(test.victims, names(got.Victims)); diff != "" {
			t.Errorf("%s: victims (-want +got):\n%s", name, diff)
		}
	}
}
