package image

import (
	"fmt"
	"time"
)

const (
	// reportFirst is how long a pull runs before the first event about its progress. The time until the next event
	// doubles, up to an interval of reportMost.
	reportFirst = 10 * time.Second
	reportMost  = 5 * time.Minute
	// stallTime is how long a pull may make no progress before other pulls get its slot.
	stallTime = 10 * time.Second
)

// sample is the progress of a pull that a runtime reports, in bytes.
type sample struct{ fetched, total, unpacked int64 }

// course is the history of a pull.
type course struct {
	known     bool // the runtime reports progress
	begin     time.Time
	last      sample
	sampledAt time.Time // time of last
	changedAt time.Time // when a sample last differed from the one before
	rate      int64     // bytes per second, a moving average
	stalled   bool
	next      time.Duration // time since begin of the next progress event
}

func newCourse(known bool, now time.Time) course {
	return course{known: known, begin: now, sampledAt: now, changedAt: now, next: reportFirst}
}

// step adds a sample. news is the text of a progress event, or "" for none.
func (c course) step(now sample, at time.Time) (next course, news string) {
	if seconds := at.Sub(c.sampledAt).Seconds(); seconds > 0 {
		lately := float64(now.fetched-c.last.fetched) / seconds
		c.rate = int64(0.7*float64(c.rate) + 0.3*max(0, lately))
		if c.last == (sample{}) {
			c.rate = int64(max(0, lately))
		}
	}
	if now != c.last {
		c.changedAt = at
	}
	wasStalled := c.stalled
	c.stalled = c.known && at.Sub(c.changedAt) >= stallTime
	c.last, c.sampledAt = now, at
	elapsed := at.Sub(c.begin)
	switch {
	case c.stalled && !wasStalled:
		news = fmt.Sprintf("no progress for %v%s; other pulls go first", at.Sub(c.changedAt).Truncate(time.Second),
			c.amount(" at "))
	case wasStalled && !c.stalled:
		news = fmt.Sprintf("there is progress again%s", c.amount(", "))
	}
	if elapsed >= c.next {
		for c.next <= elapsed {
			c.next += min(c.next, reportMost)
		}
		if news == "" && !c.stalled {
			news = fmt.Sprintf("%v%s", elapsed.Truncate(time.Second), c.amount(", "))
			if c.rate > 0 {
				news += fmt.Sprintf(", %s/s", size(c.rate))
			}
		}
	}
	return c, news
}

// amount returns how much was fetched, and of how much if that is known. It is "" if the runtime reports no progress.
func (c course) amount(before string) string {
	switch {
	case !c.known:
		return ""
	case c.last.total == 0:
		return before + size(c.last.fetched)
	}
	return before + size(c.last.fetched) + " of " + size(c.last.total)
}

// size formats a number of bytes for people.
func size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, exponent := float64(n)/unit, 0
	for value >= unit && exponent < len("KMGT")-1 {
		value /= unit
		exponent++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGT"[exponent])
}
