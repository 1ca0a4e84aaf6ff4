package clock

import "time"

// Passed reports whether the time at has passed by either clock. So work is done on time if the machine's clock was set
// ahead or the machine was suspended. It is not delayed if that clock was set back.
func Passed(at, now time.Time) bool {
	return !now.Before(at) || !now.Round(0).Before(at.Round(0))
}

// After reports whether at, a time of the machine's clock, is after read, a time that this process has read. It
// compares with the reading itself and with the reading corrected by later changes of the machine's clock.
func After(at, read, now time.Time) bool {
	return at.After(read) || at.After(now.Add(-now.Sub(read)))
}
