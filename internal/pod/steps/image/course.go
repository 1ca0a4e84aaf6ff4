package image

import (
	"fmt"
	"time"
)

const (
	// tellFirst is how long a pull takes before that is worth an event; each next
	// one is after twice the time, at most tellMost.
	tellFirst = 10 * time.Second
	tellMost  = 5 * time.Minute
	// stallTime is how long a pull may make no progress before others take its slot.
	stallTime = 10 * time.Second
)

// sample is what a runtime tells of a pull, in bytes.
type sample struct{ fetched, total, unpacked int64 }

// course is how a pull has gone so far.
type course struct {
	known   bool // the runtime tells
	begin   time.Time
	last    sample
	looked  time.Time // when last was taken
	moved   time.Time // when it was different last
	rate    int64     // bytes per second, lately
	stalled bool
	next    time.Duration // after which time it is told again
}

func newCourse(known bool, now time.Time) course {
	return course{known: known, begin: now, looked: now, moved: now, next: tellFirst}
}

// step takes another look. news is what is to be told of it, "" for nothing.
func (c course) step(now sample, at time.Time) (next course, news string) {
	if seconds := at.Sub(c.looked).Seconds(); seconds > 0 {
		lately := float64(now.fetched-c.last.fetched) / seconds
		c.rate = int64(0.7*float64(c.rate) + 0.3*max(0, lately))
		if c.last == (sample{}) {
			c.rate = int64(max(0, lately))
		}
	}
	if now != c.last {
		c.moved = at
	}
	was := c.stalled
	c.stalled = c.known && at.Sub(c.moved) >= stallTime
	c.last, c.looked = now, at
	elapsed := at.Sub(c.begin)
	switch {
	case c.stalled && !was:
		news = fmt.Sprintf("no progress for %v%s; other pulls go first", at.Sub(c.moved).Truncate(time.Second),
			c.amount(" at "))
	case was && !c.stalled:
		news = fmt.Sprintf("there is progress again%s", c.amount(", "))
	}
	if elapsed >= c.next {
		for c.next <= elapsed {
			c.next += min(c.next, tellMost)
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

// amount is what was fetched of what is to be; "" when that is not known.
func (c course) amount(before string) string {
	switch {
	case !c.known:
		return ""
	case c.last.total == 0:
		return before + size(c.last.fetched)
	}
	return before + size(c.last.fetched) + " of " + size(c.last.total)
}

// size is a number of bytes to read.
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
