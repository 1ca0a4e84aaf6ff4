package eviction

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Standing is where a signal stands between its thresholds, for people.
type Standing struct {
	Signal Signal
	Seen   Observation
	// Trend is by how much Seen.Available has changed a second since Since, negative if it has fallen. Since is zero if
	// there was no earlier look.
	Trend float64
	Since time.Time
	// Limits are the thresholds of the signal, hard ones first.
	Limits []Limit
}

// Limit is a threshold as an amount.
type Limit struct {
	Threshold
	Amount int64
	// Short says that less is available. The grace period of a soft threshold may still run.
	Short bool
}

// Standings compares a look with the thresholds, in the order of Signals. earlier returns an older look, or the zero
// value. A signal without a threshold or without an observation is left out.
func Standings(thresholds []Threshold, seen Observations, earlier func(Signal) Observation) (all []Standing) {
	for _, signal := range Signals() {
		now, ok := seen[signal]
		if !ok {
			continue
		}
		one := Standing{Signal: signal, Seen: now}
		for _, t := range thresholds {
			if t.Signal == signal {
				one.Limits = append(one.Limits, Limit{t, t.Value.Of(now.Capacity), t.short(now, false)})
			}
		}
		if len(one.Limits) == 0 {
			continue
		}
		slices.SortStableFunc(one.Limits, func(a, b Limit) int { return cmp.Compare(a.Grace, b.Grace) })
		before := earlier(signal)
		if took := now.At.Sub(before.At); !before.At.IsZero() && took >= leastTrend {
			one.Trend, one.Since = float64(now.Available-before.Available)/took.Seconds(), before.At
		}
		all = append(all, one)
	}
	return all
}

// A trend is the change over trendSpan to twice that time. Below leastTrend it would be noise.
const (
	trendSpan  = 10 * time.Second
	leastTrend = 500 * time.Millisecond
)

// history keeps two looks at each signal, so that one of them is at least trendSpan old. Its methods may be called from
// any goroutine.
type history struct {
	mu           sync.Mutex
	older, newer Observations
}

// add remembers a look if the latest that it remembers is old enough.
func (h *history) add(seen Observations) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.newer == nil {
		h.older, h.newer = Observations{}, Observations{}
	}
	for signal, now := range seen {
		last, known := h.newer[signal]
		if known && now.At.Sub(last.At) < trendSpan {
			continue
		}
		if h.newer[signal] = now; known {
			h.older[signal] = last
		}
	}
}

// earlier returns the older of the looks at a signal, or the zero value if there was none.
func (h *history) earlier(s Signal) Observation {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o, ok := h.older[s]; ok {
		return o
	}
	return h.newer[s]
}

// Standings looks at the machine now, and compares it with the thresholds and with earlier looks. It may be called from
// any goroutine. The error says why signals are missing.
func (e *Evictor) Standings() ([]Standing, error) {
	seen, err := e.Facts.Observe(e.Now())
	return Standings(e.Thresholds, seen, e.past.earlier), err
}

// Order is the order of eviction for a signal.
type Order struct {
	Signal Signal
	// Ranked are the pods that may be evicted: the first one goes first. Critical pods are never evicted.
	Ranked, Critical []Candidate
	// Victims are the pods that would end now. It is empty while the signal is not short.
	Victims []Candidate
}

// Order returns the order of eviction for a signal that stands here.
func (s Standing) Order(all []Candidate, now time.Time) Order {
	o := Order{Signal: s.Signal, Ranked: Rank(s.Signal.Resource(), all)}
	for _, c := range all {
		if c.Critical {
			o.Critical = append(o.Critical, c)
		}
	}
	for _, limit := range s.Limits {
		if !limit.Short {
			continue
		}
		if victims := Choose(limit.crossing(s.Seen), all, now); len(victims) > len(o.Victims) {
			o.Victims = victims
		}
	}
	return o
}
