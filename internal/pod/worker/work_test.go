package worker

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWork(t *testing.T) {
	type pass struct {
		busy     bool
		revision int
	}
	for name, c := range map[string]struct {
		passes []pass // one a second
		want   map[Operation]time.Duration
	}{
		"nothing to do": {[]pass{{false, 0}, {false, 1}}, map[Operation]time.Duration{}},
		"one task after the other": {[]pass{{true, 0}, {true, 0}, {true, 0}, {false, 0}},
			map[Operation]time.Duration{Create: 3 * time.Second}},
		"a restart later": {[]pass{{true, 0}, {false, 0}, {true, 0}, {false, 0}},
			map[Operation]time.Duration{Create: time.Second, Sync: time.Second}},
		"a restart after that of an agent": {[]pass{{false, 0}, {true, 0}, {true, 0}, {false, 0}},
			map[Operation]time.Duration{Sync: 2 * time.Second}},
		"another pod":   {[]pass{{false, 0}, {true, 1}, {false, 1}}, map[Operation]time.Duration{Update: time.Second}},
		"still at work": {[]pass{{true, 0}, {true, 0}}, map[Operation]time.Duration{}},
	} {
		var k work
		got := map[Operation]time.Duration{}
		for i, p := range c.passes {
			now := time.Unix(int64(i), 0)
			if ended, began := k.pass(p.busy, p.revision, now); ended != "" {
				got[ended] += now.Sub(began)
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}
