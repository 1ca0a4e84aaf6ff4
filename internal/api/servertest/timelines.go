package servertest

import (
	"slices"
	"sync"

	"github.com/berth-run/berth/internal/record/timeline"
)

// timelines shows the timelines that a test sets.
type timelines struct {
	mu    sync.Mutex
	lines []timeline.Timeline
}

// Find implements past.Timelines.
func (l *timelines) Find(namespace, name string) (timeline.Timeline, bool) {
	for _, t := range get(&l.mu, &l.lines) {
		if t.Namespace == namespace && t.Name == name {
			return t, true
		}
	}
	return timeline.Timeline{}, false
}

// Last implements past.Timelines.
func (l *timelines) Last(n int) []timeline.Timeline {
	all := slices.Clone(get(&l.mu, &l.lines))
	return all[max(0, len(all)-n):]
}

// List implements past.Timelines.
func (l *timelines) List() []timeline.Timeline {
	all := slices.Clone(get(&l.mu, &l.lines))
	for i := range all {
		all[i].Spans = nil
	}
	return all
}
