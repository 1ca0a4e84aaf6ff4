package idle

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Busy times end after the quiet time or after their limit.
func TestFollow(t *testing.T) {
	const limit = 30
	for _, test := range []struct {
		name        string
		limit       time.Duration
		active      []int // seconds of activities
		busy, rests []int // seconds of calls
	}{
		{"one activity", 0, []int{3}, []int{3}, []int{13}},
		{"another one in time", 0, []int{3, 12}, []int{3}, []int{22}},
		{"another one later", 0, []int{3, 14}, []int{3, 14}, []int{13, 24}},
		{"without an end", limit * time.Second, []int{0, 8, 16, 24, 32, 40}, []int{0, 40}, []int{32, 50}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				now := func() int { return int(time.Since(began).Seconds()) }
				var busy, rests []int
				all := 0
				active := make(chan struct{})
				ctx, stop := context.WithCancel(t.Context())
				go Follow(ctx, active, 10*time.Second, test.limit, func(first bool) {
					if all++; first {
						busy = append(busy, now())
					}
				}, func() { rests = append(rests, now()) })
				for _, at := range test.active {
					time.Sleep(time.Until(began.Add(time.Duration(at) * time.Second)))
					active <- struct{}{}
				}
				time.Sleep(time.Minute)
				stop()
				synctest.Wait()
				if !slices.Equal(busy, test.busy) || !slices.Equal(rests, test.rests) || all != len(test.active) {
					t.Errorf("busy since %v, rests at %v, %d activities; want %v, %v, %d", busy, rests, all, test.busy,
						test.rests, len(test.active))
				}
			})
		})
	}
}
