package garbage

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/v2/pkg/gc"
)

var errFull = errors.New("disk full")

// records is a database whose collections take a time, and may fail.
type records struct {
	began   time.Time
	takes   time.Duration
	full    atomic.Bool
	changed func(deleted bool)
	at      []time.Duration // when collections began
}

func (r *records) RegisterMutationCallback(changed func(bool)) { r.changed = changed }

func (r *records) GarbageCollect(context.Context) (gc.Stats, error) {
	r.at = append(r.at, time.Since(r.began))
	time.Sleep(r.takes)
	if r.full.Load() {
		return nil, errFull
	}
	return nil, nil
}

// sleepUntil sleeps until a second of the test, and until nothing happens then.
func (r *records) sleepUntil(second int) {
	time.Sleep(time.Until(r.began.Add(time.Duration(second) * time.Second)))
	synctest.Wait()
}

// collections runs do with a collector, and returns the seconds when collections began.
func collections(t *testing.T, r *records, do func(*testing.T, *collector)) (seconds []int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r.began = time.Now()
		c := newCollector(r)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { c.run(ctx); close(ended) }()
		do(t, c)
		stop()
		<-ended
		for _, at := range r.at {
			seconds = append(seconds, int(at.Seconds()))
		}
	})
	return seconds
}

// There is one collection after the start, and one for all deletions within ten seconds.
func TestCollections(t *testing.T) {
	r := &records{}
	got := collections(t, r, func(*testing.T, *collector) {
		for _, second := range []int{20, 22, 29, 31, 60} {
			r.sleepUntil(second)
			r.changed(true)
		}
		r.sleepUntil(1000)
		for range many - 1 {
			r.changed(false)
		}
		r.sleepUntil(2000)
		r.changed(false)
		r.sleepUntil(3000)
	})
	if want := []int{5, 30, 41, 70, 2010}; !slices.Equal(got, want) {
		t.Errorf("collections at %v s, want %v", got, want)
	}
}

// After a collection that takes long, the next one comes later.
func TestLongCollections(t *testing.T) {
	r := &records{takes: 100 * time.Millisecond}
	got := collections(t, r, func(*testing.T, *collector) {
		r.sleepUntil(10)
		r.changed(true)
		r.sleepUntil(100)
	})
	if want := []int{5, 30}; !slices.Equal(got, want) {
		t.Errorf("collections at %v s, want %v", got, want)
	}
}

// Who waits for a collection gets one at once, and its error. It is also the one for the deletions before it. One that
// has failed is made again.
func TestScheduleAndWait(t *testing.T) {
	r := &records{}
	got := collections(t, r, func(t *testing.T, c *collector) {
		r.sleepUntil(20)
		r.changed(true)
		r.sleepUntil(21)
		r.changed(true)
		if _, err := c.ScheduleAndWait(t.Context()); err != nil {
			t.Error(err)
		}
		r.sleepUntil(100)
		r.full.Store(true)
		if _, err := c.ScheduleAndWait(t.Context()); !errors.Is(err, errFull) {
			t.Errorf("the error of a collection is %v, want %v", err, errFull)
		}
		r.sleepUntil(105)
		r.full.Store(false)
		r.sleepUntil(200)
		r.takes = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.ScheduleAndWait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call with a deadline returned %v", err)
		}
		r.sleepUntil(300)
	})
	if want := []int{5, 21, 100, 110, 200}; !slices.Equal(got, want) {
		t.Errorf("collections at %v s, want %v", got, want)
	}
}
