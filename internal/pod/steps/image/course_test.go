package image

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCourse(t *testing.T) {
	const mib = 1 << 20
	cases := []struct {
		name  string
		known bool
		at    func(second int) sample
		want  map[int]string // news by second
	}{
		{"no progress is told by the runtime", false, func(int) sample { return sample{} },
			map[int]string{10: "10s", 20: "20s", 40: "40s"}},
		{"goes on", true, func(s int) sample { return sample{fetched: int64(s) * mib, total: 100 * mib} },
			map[int]string{10: "10s, 10.0 MiB of 100.0 MiB, 1.0 MiB/s", 20: "20s, 20.0 MiB of 100.0 MiB, 1.0 MiB/s",
				40: "40s, 40.0 MiB of 100.0 MiB, 1.0 MiB/s"}},
		{"stalls and goes on", true, func(s int) sample {
			if s < 30 {
				return sample{fetched: mib}
			}
			return sample{fetched: int64(s) * mib}
		}, map[int]string{10: "10s, 1.0 MiB, 41.3 KiB/s", 11: "no progress for 10s at 1.0 MiB; other pulls go first",
			30: "there is progress again, 30.0 MiB", 40: "40s, 40.0 MiB, 1.2 MiB/s"}},
		{"unpacks", true, func(s int) sample { return sample{fetched: mib, total: mib, unpacked: int64(s)} },
			map[int]string{10: "10s, 1.0 MiB of 1.0 MiB, 41.3 KiB/s", 20: "20s, 1.0 MiB of 1.0 MiB, 1.2 KiB/s",
				40: "40s, 1.0 MiB of 1.0 MiB"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			begin := time.Unix(1000, 0)
			course, got := newCourse(c.known, begin), map[int]string{}
			for second := 1; second <= 45; second++ {
				var news string
				if course, news = course.step(c.at(second), begin.Add(time.Duration(second)*time.Second)); news != "" {
					got[second] = news
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestQueue(t *testing.T) {
	q := queue{limit: 1}
	enter := func(priority int32) *pull {
		p := &pull{priority: priority, turn: make(chan struct{})}
		q.enter(p)
		return p
	}
	first, low, high, higher, gone := enter(0), enter(1), enter(5), enter(5), enter(9)
	q.leave(gone) // its pod was deleted
	var order []*pull
	for p := first; p != nil; {
		order = append(order, p)
		q.leave(p)
		q.leave(p) // a second call is harmless
		p = nil
		for _, next := range []*pull{low, high, higher} {
			if next.slot {
				p = next
			}
		}
	}
	for i, want := range []*pull{first, high, higher, low} {
		if i >= len(order) || order[i] != want {
			t.Fatalf("place %d is not the one of priority %d", i, want.priority)
		}
	}
	if q.used != 0 || len(q.waiting) != 0 {
		t.Errorf("%d slots in use, %d wait", q.used, len(q.waiting))
	}
}
