package rate

import (
	"sync"
	"time"
)

// point is the CPU time used up to a moment.
type point struct {
	at    time.Time
	usage uint64 // ns
	rate  *uint64
}

// Rates computes CPU usage from successive CPU times. For something seen for the first time there is a rate only if it
// is younger than youngAge: its average since its start.
type Rates struct {
	mu   sync.Mutex
	last map[string]point
}

// New returns Rates without points.
func New() *Rates { return &Rates{last: map[string]point{}} }

// leastInterval is the shortest time between two points of a rate. Until it has passed, the previous rate is returned.
const leastInterval = 500 * time.Millisecond

// youngAge is the age limit for a rate from one point: below it, the average since the start counts as the current
// rate.
const youngAge = time.Minute

// Next returns the CPU usage of a thing in billionths of a core. It computes it from the CPU time in nanoseconds that
// the thing has used so far. key identifies it, and started is when it started. It returns nil while there is no rate.
func (r *Rates) Next(key string, at time.Time, usage uint64, started time.Time) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.last[key]
	if !known && at.Sub(started) < youngAge {
		was, known = point{at: started}, true
	}
	if known && at.Sub(was.at) < leastInterval {
		return was.rate
	}
	now := point{at: at, usage: usage}
	if known && usage >= was.usage {
		now.rate = new(uint64(float64(usage-was.usage) / at.Sub(was.at).Seconds()))
	}
	r.last[key] = now
	return now.rate
}

// Keep drops the points that are older than a time.
func (r *Rates) Keep(before time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, p := range r.last {
		if p.at.Before(before) {
			delete(r.last, key)
		}
	}
}
