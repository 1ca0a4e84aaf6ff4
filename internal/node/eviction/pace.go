package eviction

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The bounds of NextLook.
const (
	soonestLook = 50 * time.Millisecond
	latestLook  = 30 * time.Second
)

// NextLook returns how long the observations in seen may stand. If a signal falls as fast as since the previous look,
// it covers at most half of its distance to the next threshold in that time. silent signals have no notification by the
// kernel: for them NextLook reckons with the speed of Signal.burst, because they may start to fall at any time.
func NextLook(thresholds []Threshold, before, seen Observations, silent func(Signal) bool) time.Duration {
	next := latestLook
	for _, t := range thresholds {
		now, ok := seen[t.Signal]
		if !ok {
			continue
		}
		distance := now.Available - t.Value.Of(now.Capacity)
		speed := now.fall(before[t.Signal])
		if silent(t.Signal) {
			speed = max(speed, t.Signal.burst())
		}
		if distance > 0 && speed > 0 {
			next = min(next, time.Duration(float64(distance)/speed/2*float64(time.Second)))
		}
	}
	return max(next, soonestLook)
}

// nextLimits returns the highest limit of each signal that is not crossed yet.
func nextLimits(thresholds []Threshold, seen Observations) map[Signal]int64 {
	next := map[Signal]int64{}
	for _, t := range thresholds {
		now, ok := seen[t.Signal]
		if limit := t.Value.Of(now.Capacity); ok && limit < now.Available {
			next[t.Signal] = max(next[t.Signal], limit)
		}
	}
	return next
}

// fall returns by how much a second the amount has fallen since another look. It is 0 if it has risen, or if there was
// no other look.
func (o Observation) fall(before Observation) float64 {
	took := o.At.Sub(before.At).Seconds()
	if before.At.IsZero() || took <= 0 {
		return 0
	}
	return max(0, float64(before.Available-o.Available)/took)
}

// burst is a speed in units a second that few programs exceed: memory that a few threads touch, a fast disk, small
// files, processes.
func (s Signal) burst() float64 {
	switch s.Resource() {
	case PIDs:
		return 10_000
	case Inodes:
		return 50_000
	case corev1.ResourceEphemeralStorage:
		return 1 << 28
	default:
		return 1 << 30
	}
}
