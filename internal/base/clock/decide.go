package clock

import "time"

// Passed says that at has passed by one of the two clocks, if both know it. What is
// due is done when the machine's clock was set ahead, or the machine has slept, and
// is not put off when that clock was set back.
func Passed(at, now time.Time) bool {
	return !now.Before(at) || !now.Round(0).Before(at.Round(0))
}

// After says that a time of the machine's clock is after one that was read here, by
// what that clock showed then or by what it would have shown if it had been then as
// it is now.
func After(at, read, now time.Time) bool {
	return at.After(read) || at.After(now.Add(-now.Sub(read)))
}
