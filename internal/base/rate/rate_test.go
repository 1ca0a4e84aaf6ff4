package rate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRates(t *testing.T) {
	r := New()
	at := time.Unix(0, 0)
	for _, c := range []struct {
		after time.Duration
		usage uint64
		want  *uint64
	}{
		{0, 100, nil},
		{2 * time.Second, 100 + 3e9, new(uint64(15e8))},
		{100 * time.Millisecond, 100 + 4e9, new(uint64(15e8))}, // too soon: the previous rate
		{time.Second, 50, nil},                                 // a new cgroup of the same name
	} {
		at = at.Add(c.after)
		if d := cmp.Diff(c.want, r.Next("a", at, c.usage, time.Time{})); d != "" {
			t.Errorf("at %v: %s", at, d)
		}
	}
	if d := cmp.Diff(new(uint64(1e9)), r.Next("new", at, 2e9, at.Add(-2*time.Second))); d != "" {
		t.Errorf("a young cgroup: %s", d)
	}
	if d := cmp.Diff((*uint64)(nil), r.Next("old", at, 2e9, at.Add(-2*time.Minute))); d != "" {
		t.Errorf("an old cgroup: %s", d)
	}
	r.Keep(at.Add(time.Second))
	if len(r.last) != 0 {
		t.Error("a point older than an hour was kept")
	}
}
