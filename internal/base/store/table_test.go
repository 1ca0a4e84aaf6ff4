package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

type change = Change[string, int]

// Each step writes, then names the changes that the watcher must see.
func TestWatch(t *testing.T) {
	tests := []struct {
		name string
		open func(*Table[string, int]) *Watcher[string, int]
		do   func(*Table[string, int])
		want []change
	}{
		{
			name: "rows that exist come first",
			open: (*Table[string, int]).Watch,
			do:   func(*Table[string, int]) {},
			want: []change{{Key: "old", Value: 1, Revision: 1}},
		},
		{
			name: "one entry for each key, oldest revision first",
			open: (*Table[string, int]).Watch,
			do: func(tb *Table[string, int]) {
				tb.Put("a", 1)
				tb.Put("b", 2)
				tb.Put("a", 3)
			},
			want: []change{{Key: "old", Value: 1, Revision: 1}, {Key: "b", Value: 2, Revision: 3},
				{Key: "a", Value: 3, Revision: 4}},
		},
		{
			name: "a deletion carries the last value",
			open: (*Table[string, int]).Watch,
			do:   func(tb *Table[string, int]) { tb.Delete("old") },
			want: []change{{Key: "old", Value: 1, Deleted: true, Revision: 2}},
		},
		{
			name: "put and deleted between two looks",
			open: (*Table[string, int]).Watch,
			do: func(tb *Table[string, int]) {
				tb.Put("a", 1)
				tb.Delete("a")
			},
			want: []change{{Key: "old", Value: 1, Revision: 1}, {Key: "a", Value: 1, Deleted: true, Revision: 3}},
		},
		{
			name: "deleted and put again",
			open: (*Table[string, int]).Watch,
			do: func(tb *Table[string, int]) {
				tb.Delete("old")
				tb.Put("old", 7)
			},
			want: []change{{Key: "old", Value: 7, Revision: 3}},
		},
		{
			name: "a key that is not there",
			open: func(tb *Table[string, int]) *Watcher[string, int] { return tb.WatchKey("a") },
			do:   func(tb *Table[string, int]) { tb.Put("b", 1) },
			want: []change{{Key: "a", Deleted: true, Revision: 1}},
		},
		{
			name: "one key only",
			open: func(tb *Table[string, int]) *Watcher[string, int] { return tb.WatchKey("old") },
			do: func(tb *Table[string, int]) {
				tb.Put("b", 1)
				tb.Put("old", 2)
			},
			want: []change{{Key: "old", Value: 2, Revision: 3}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table := New[string, int]()
			table.Put("old", 1)
			w := tt.open(table)
			defer w.Stop()
			tt.do(table)
			if diff := cmp.Diff(tt.want, w.Changes()); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if again := w.Changes(); again != nil {
				t.Errorf("second look: got %v, want nothing", again)
			}
			if len(w.C()) != 0 {
				t.Error("a token is left although all changes were read")
			}
		})
	}
}

func TestRowsAndRevision(t *testing.T) {
	table := New[string, int]()
	table.Put("a", 1)
	before := table.Snapshot()
	table.Put("a", 2)
	table.Put("b", 3)
	table.Delete("b")
	if got := table.Delete("b"); got != 4 {
		t.Errorf("delete of an absent key: revision %d, want 4", got)
	}
	if v, ok := table.Get("a"); v != 2 || !ok {
		t.Errorf("Get(a) = %d, %v", v, ok)
	}
	if _, ok := table.Get("b"); ok {
		t.Error("b is still there")
	}
	type state struct {
		Rows     map[string]int
		Len      int
		Revision uint64
	}
	take := func(s Snapshot[string, int]) state {
		return state{maps.Collect(s.All()), s.Len(), s.Revision()}
	}
	if diff := cmp.Diff(state{map[string]int{"a": 1}, 1, 1}, take(before)); diff != "" {
		t.Errorf("snapshot changed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(state{map[string]int{"a": 2}, table.Len(), table.Revision()},
		take(table.Snapshot())); diff != "" {
		t.Errorf("snapshot now (-want +got):\n%s", diff)
	}
}

func TestStoppedWatcherIsSilent(t *testing.T) {
	table := New[string, int]()
	all, one := table.Watch(), table.WatchKey("a")
	all.Stop()
	one.Stop()
	table.Put("a", 1)
	if len(all.C())+len(one.C()) != 0 || all.Changes() != nil || one.Changes() != nil {
		t.Error("a stopped watcher was woken")
	}
	if len(table.all)+len(table.byKey) != 0 {
		t.Errorf("watchers left: %d, %d", len(table.all), len(table.byKey))
	}
}

func TestNextWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := New[string, int]()
		w := table.Watch()
		defer w.Stop()
		got := make(chan []change)
		go func() {
			changes, err := w.Next(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- changes
		}()
		synctest.Wait() // Next blocks because nothing has changed
		select {
		case c := <-got:
			t.Fatalf("woken without a change: %v", c)
		default:
		}
		table.Put("a", 1)
		if diff := cmp.Diff([]change{{Key: "a", Value: 1, Revision: 1}}, <-got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Next after cancel: %v", err)
		}
	})
}

// Readers of every kind run beside one writer. Each must end with the last state.
func TestConcurrentReadersSeeTheLastState(t *testing.T) {
	const keys, rounds = 8, 2000
	table := New[int, int]()
	var wg sync.WaitGroup
	for k := range keys {
		w := table.WatchKey(k)
		wg.Go(func() {
			defer w.Stop()
			for last := 0; last != rounds; {
				changes, err := w.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if v := changes[len(changes)-1].Value; v < last {
					t.Errorf("key %d went back from %d to %d", k, last, v)
					return
				} else {
					last = v
				}
			}
		})
	}
	w := table.Watch()
	wg.Go(func() {
		defer w.Stop()
		last := map[int]int{}
		for done := 0; done < keys; {
			<-w.C()
			for _, c := range w.Changes() {
				last[c.Key] = c.Value
				if c.Value == rounds {
					done++
				}
			}
			if s := table.Snapshot(); s.Len() > keys {
				t.Errorf("snapshot has %d rows", s.Len())
			}
		}
	})
	for i := 1; i <= rounds; i++ {
		for k := range keys {
			table.Put(k, i)
		}
	}
	wg.Wait()
}

// Where must not make the next write copy the rows, as a Snapshot does.
func TestWhere(t *testing.T) {
	table := New[string, int]()
	for key, v := range map[string]int{"a": 1, "b": 2, "c": 3} {
		table.Put(key, v)
	}
	got := table.Where(func(v int) bool { return v > 1 })
	slices.Sort(got)
	if diff := cmp.Diff([]int{2, 3}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if table.shared {
		t.Error("the rows are shared")
	}
}
