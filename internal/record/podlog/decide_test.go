package podlog

import (
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	const grace = 100 * time.Millisecond
	due := time.Unix(1000, 0)
	after := func(ms int) time.Time { return due.Add(time.Duration(ms) * time.Millisecond) }
	tests := []struct {
		name       string
		p          progress
		began, now time.Time
		v          verdict
		wait       time.Duration
	}{
		{"nothing happened", progress{}, after(1), after(2), stay, 0},
		{"closed, but no file after it", progress{Closed: true}, after(1), after(2), stay, 0},
		{"the next file is empty", progress{Next: true}, after(1), after(2), stay, 0},
		{"closed, the next file is empty", progress{Next: true, Closed: true}, after(1), after(2), leave, 0},
		{"the next file has lines", progress{Next: true, Filled: true}, after(1), after(30), linger,
			70 * time.Millisecond},
		{"the grace passed while it read", progress{Next: true, Filled: true}, after(90), after(130), linger, 0},
		{"the grace passed before it read", progress{Next: true, Filled: true}, after(100), after(130), leave, 0},
		{"ended", progress{Ended: true}, after(1), after(10), linger, 90 * time.Millisecond},
		{"ended and closed", progress{Ended: true, Closed: true}, after(1), after(10), leave, 0},
		{"ended a while ago", progress{Ended: true}, after(200), after(201), leave, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, wait := decide(tt.p, due, tt.began, tt.now, grace)
			if v != tt.v || wait != tt.wait {
				t.Errorf("decide = %d, %s; want %d, %s", v, wait, tt.v, tt.wait)
			}
		})
	}
}
