package eviction

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// State is the part of earlier decisions that the next decision needs. The zero value is the state before the first
// one.
type State struct {
	// since holds when each threshold became short.
	since map[Threshold]time.Time
	// acting holds the thresholds of the last decision's crossings. They stay short until Minimum is free too.
	acting []Threshold
	// pressure holds when each condition was last caused.
	pressure map[corev1.NodeConditionType]time.Time
}

// Crossing is a signal below its threshold that makes pods end now.
type Crossing struct {
	Threshold Threshold
	Seen      Observation
	// Limit is the threshold as an amount.
	Limit int64
	// Shortfall is the amount to free so that the threshold and its Minimum are met. It is at least 1.
	Shortfall int64
}

// Verdict is the result of a decision.
type Verdict struct {
	// Pressure lists the conditions that hold, sorted.
	Pressure []corev1.NodeConditionType
	// Crossings lists the crossings to act on: hard thresholds first, then memory, then the order of Signals.
	Crossings []Crossing
	// Next is when the verdict changes by time alone: a grace period or a transition period ends. Zero if it does not.
	Next time.Time
}

// Decide compares the observations with the thresholds. A condition stays for the transition period after its last
// cause. A signal without an observation is never short.
func Decide(thresholds []Threshold, seen Observations, before State, transition time.Duration, now time.Time) (
	State, Verdict) {
	after := State{since: map[Threshold]time.Time{}, pressure: map[corev1.NodeConditionType]time.Time{}}
	var v Verdict
	for _, t := range thresholds {
		observed, ok := seen[t.Signal]
		if !ok || !t.short(observed, slices.Contains(before.acting, t)) {
			continue
		}
		since, known := before.since[t]
		if !known {
			since = now
		}
		after.since[t] = since
		after.pressure[t.Signal.Condition()] = now
		if due := since.Add(t.Grace); now.Before(due) {
			v.wake(due)
			continue
		}
		after.acting = append(after.acting, t)
		v.Crossings = append(v.Crossings, t.crossing(observed))
	}
	for condition, last := range before.pressure {
		if _, caused := after.pressure[condition]; caused {
			continue
		}
		if end := last.Add(transition); now.Before(end) {
			after.pressure[condition] = last
			v.wake(end)
		}
	}
	v.Pressure = slices.Sorted(maps.Keys(after.pressure))
	slices.SortStableFunc(v.Crossings, func(a, b Crossing) int {
		return cmp.Or(cmp.Compare(a.Threshold.urgency(), b.Threshold.urgency()),
			cmp.Compare(slices.Index(Signals(), a.Threshold.Signal), slices.Index(Signals(), b.Threshold.Signal)))
	})
	return after, v
}

// short reports whether less is available than the threshold, or, once the threshold is acted on, than the threshold
// and its minimum.
func (t Threshold) short(seen Observation, acting bool) bool {
	limit := t.Value.Of(seen.Capacity)
	if acting {
		limit += t.Minimum.Of(seen.Capacity)
	}
	return seen.Available < limit
}

func (t Threshold) crossing(seen Observation) Crossing {
	limit := t.Value.Of(seen.Capacity)
	return Crossing{Threshold: t, Seen: seen, Limit: limit,
		Shortfall: max(1, limit+t.Minimum.Of(seen.Capacity)-seen.Available)}
}

// urgency sorts crossings. Memory comes first: without memory the kernel kills a process of its own choice.
func (t Threshold) urgency() int {
	switch memory := t.Signal.Resource() == corev1.ResourceMemory; {
	case t.Hard() && memory:
		return 0
	case t.Hard():
		return 1
	case memory:
		return 2
	default:
		return 3
	}
}

// wake moves Next forward.
func (v *Verdict) wake(at time.Time) {
	if v.Next.IsZero() || at.Before(v.Next) {
		v.Next = at
	}
}
