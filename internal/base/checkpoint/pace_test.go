package checkpoint

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		dirty := make(chan struct{}, 1)
		dirty <- struct{}{}
		type turn struct {
			After            time.Duration
			Fails, Recovered bool
		}
		var p Pace
		var got []turn
		begin := time.Now()
		full := errors.New("no space left on device")
		for _, outcome := range []error{full, full, full, full, full, full, nil} {
			if !p.Wait(ctx, dirty, time.Second) {
				t.Fatal("ended")
			}
			fails, recovered := p.Record(outcome)
			got = append(got, turn{time.Since(begin), fails, recovered})
		}
		want := []turn{
			{1 * time.Second, true, false}, {6 * time.Second, false, false}, {16 * time.Second, false, false},
			{36 * time.Second, false, false},
			{76 * time.Second, false, false}, {136 * time.Second, false, false}, {196 * time.Second, false, true},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		cancel()
		if p.Wait(ctx, dirty, time.Second) {
			t.Error("it goes on after its end")
		}
	})
}
