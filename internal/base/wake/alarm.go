package wake

import "time"

// Alarm wakes a loop at a time. Make it with NewAlarm, and stop it when the loop ends.
type Alarm struct{ timer *time.Timer }

// NewAlarm returns an alarm that wakes the loop at once, for its first pass.
func NewAlarm() Alarm { return Alarm{time.NewTimer(0)} }

// C is the channel that the loop receives from.
func (a Alarm) C() <-chan time.Time { return a.timer.C }

// Set replaces the time of the alarm, as seen from now. The zero time is never.
func (a Alarm) Set(at, now time.Time) {
	a.timer.Stop()
	if !at.IsZero() {
		a.timer.Reset(max(0, at.Sub(now)))
	}
}

// Stop ends the alarm.
func (a Alarm) Stop() { a.timer.Stop() }
