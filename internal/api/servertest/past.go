package servertest

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/berth-run/berth/internal/node/history"
)

// samples are the samples of the node's use that a test sets.
type samples struct {
	mu      sync.Mutex
	all     []history.Sample
	changed chan struct{} // closed with the next change
}

func (s *samples) set(all []history.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = all
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *samples) since(after int64) ([]history.Sample, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.all), func(x history.Sample) bool { return x.Time <= after }), s.changed
}

// Since implements past.History.
func (s *samples) Since(after int64) []history.Sample {
	some, _ := s.since(after)
	return some
}

// Watch implements past.History.
func (s *samples) Watch(ctx context.Context, after int64) iter.Seq[[]history.Sample] {
	return func(yield func([]history.Sample) bool) {
		for {
			some, changed := s.since(after)
			if len(some) > 0 {
				after = some[len(some)-1].Time
			}
			if !yield(some) {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}
}
