package clock

import (
	"testing"
	"time"
	"unsafe"
)

// later returns the time after t when the monotonic clock has advanced by passed and the machine's clock by shows. Only
// a change of the machine's clock makes such a time. So the test sets the second field of time.Time, the monotonic
// clock, by itself.
func later(t time.Time, passed, shows time.Duration) time.Time {
	t = t.Add(shows)
	(*struct {
		wall      uint64
		monotonic int64
	})(unsafe.Pointer(&t)).monotonic += int64(passed - shows)
	return t
}

func TestPassed(t *testing.T) {
	read := time.Now()
	due := read.Add(time.Minute)
	for name, test := range map[string]struct {
		passed, shows time.Duration
		want          bool
	}{
		"before":                   {30 * time.Second, 30 * time.Second, false},
		"at":                       {time.Minute, time.Minute, true},
		"the clock was set ahead":  {time.Second, 2 * time.Hour, true},
		"the clock was set back":   {time.Minute, -2 * time.Hour, true},
		"set back, and not so far": {time.Second, -2 * time.Hour, false},
	} {
		if got := Passed(due, later(read, test.passed, test.shows)); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if on := due.Round(0); Passed(on, read) || !Passed(on, later(read, 0, time.Hour)) {
		t.Error("a time of the machine's clock alone is compared with another clock")
	}
}

func TestAfter(t *testing.T) {
	read := time.Now()
	for name, test := range map[string]struct {
		at            time.Duration // the machine's clock at that time, relative to read
		passed, shows time.Duration
		want          bool
	}{
		"before":                       {-time.Second, time.Minute, time.Minute, false},
		"after":                        {time.Second, time.Minute, time.Minute, true},
		"before, and it was set ahead": {-time.Second, time.Minute, 2 * time.Hour, false},
		"after, when it was set ahead": {2 * time.Hour, 2 * time.Minute, 2*time.Hour + time.Minute, true},
		"after, when it was set back": {time.Minute - 2*time.Hour, 2 * time.Minute, 2*time.Minute - 2*time.Hour,
			true},
		"after, and it was set back then":  {time.Second, time.Minute, -2 * time.Hour, true},
		"long before, and it was set back": {-3 * time.Hour, time.Minute, -2 * time.Hour, false},
		"just before, by the clock of now": {-2*time.Hour - time.Second, time.Minute, time.Minute - 2*time.Hour, false},
	} {
		if got := After(read.Round(0).Add(test.at), read, later(read, test.passed, test.shows)); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
