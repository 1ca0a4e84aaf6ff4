package settle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitEndsWhenAllPodsAreKnownOrTheTimeIsOver(t *testing.T) {
	for name, tt := range map[string]struct {
		settled bool
		atMost  time.Duration
		want    time.Duration
	}{
		"settled":               {true, Time, 0},
		"settled, time is over": {true, -time.Second, 0},
		"never settled":         {false, Time, Time},
		"time was over":         {false, -time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				settled := make(chan struct{}) // within the bubble, so that its clock can advance
				if tt.settled {
					close(settled)
				}
				start := time.Now()
				if err := Wait(t.Context(), settled, tt.atMost); err != nil {
					t.Fatal(err)
				}
				if got := time.Since(start); got != tt.want {
					t.Errorf("waited %v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestWaitWithoutAChannelReturnsAtOnce(t *testing.T) {
	if err := Wait(t.Context(), nil, Time); err != nil {
		t.Error(err)
	}
}

func TestWaitReturnsTheErrorOfTheRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Wait(ctx, make(chan struct{}), Time); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
}
