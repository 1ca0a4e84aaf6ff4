package pressure

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// No other pod ends while a victim will still free space: until its volumes are gone, and on a file system with
// writable layers until its containers are removed and their layers are free. Each step has its bound.
func TestAccountOwesUntilTheSpaceIsFree(t *testing.T) {
	begin := time.Now()
	at := func(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }
	const grace = time.Second
	type event struct {
		at     float64 // seconds
		stages map[types.UID]stage
		do     func(a *account, now time.Time)
	}
	freed := func(a *account, now time.Time) { a.freed(now) }
	later := func(a *account, now time.Time) { a.later(now) }
	leave := func(a *account, now time.Time) { a.leave(now) }
	review := map[types.UID]stage{}
	for _, test := range []struct {
		name    string
		victims []types.UID
		events  []event
		// layers and volumes are the seconds until which space is owed on a file system with and without layers.
		layers, volumes float64
	}{
		{"nobody was evicted", nil, nil, 0, 0},
		{"a pod that does not end", []types.UID{"a"}, nil, 31, 31},
		{"a pod whose containers are not removed", []types.UID{"a"},
			[]event{{at: 2, stages: map[types.UID]stage{"a": over}}, {at: 20, stages: map[types.UID]stage{"a": over}}},
			32, 3},
		{"somebody else has removed the containers", []types.UID{"a"},
			[]event{{at: 2, stages: map[types.UID]stage{"a": removed}}}, 32, 3},
		{"the runtime frees the layers when it is asked to", []types.UID{"a"},
			[]event{{at: 2, stages: map[types.UID]stage{"a": removed}}, {at: 5, do: freed}}, 6, 3},
		{"the runtime frees the layers by itself", []types.UID{"a"},
			[]event{{at: 2, stages: map[types.UID]stage{"a": removed}}, {at: 2, do: later}}, 32, 3},
		{"the runtime does not free the layers", nil, []event{{at: 2, do: leave}, {at: 20, do: leave}}, 32, 0},
		{"the first of two pods ends sooner", []types.UID{"a", "b"},
			[]event{{at: 1, stages: map[types.UID]stage{"a": removed}}, {at: 1, do: freed}}, 31, 31},
	} {
		a := newAccount()
		for _, uid := range test.victims {
			a.add(uid, grace, begin)
		}
		for _, e := range test.events {
			stages := e.stages
			if stages == nil {
				stages = review
			}
			a.review(func(uid types.UID) stage { return stages[uid] }, at(e.at))
			if e.do != nil {
				e.do(&a, at(e.at))
			}
		}
		for layers, until := range map[bool]float64{true: test.layers, false: test.volumes} {
			if until > 0 && !a.owes(layers, at(until-0.1)) {
				t.Errorf("%s, layers %t: nothing is owed before %v s", test.name, layers, until)
			}
			if a.owes(layers, at(until)) {
				t.Errorf("%s, layers %t: space is owed after %v s", test.name, layers, until)
			}
		}
	}
}
