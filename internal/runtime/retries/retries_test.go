package retries

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type (
	cri     struct{ Closer any }
	owner   struct{ eventMonitor *monitor }
	monitor struct{ backOff *backOff }
	backOff struct{ ticker *time.Ticker }
)

// The tickers fire twice a minute, and each second for half a minute after an end.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := &owner{&monitor{&backOff{time.NewTicker(time.Second)}}}
		r, err := Of(&cri{one}, one)
		if err != nil {
			t.Fatal(err)
		}
		ended, done := make(chan struct{}), make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		go func() { r.Run(ctx, ended); close(done) }()
		synctest.Wait()
		within := func(limit time.Duration) (n int) {
			for end := time.After(limit); ; {
				select {
				case <-one.eventMonitor.backOff.ticker.C:
					n++
				case <-end:
					return n
				}
			}
		}
		if n := within(10*time.Minute + time.Second); n != 20 {
			t.Errorf("%d ticks in 10 idle minutes, want 20", n)
		}
		ended <- struct{}{}
		synctest.Wait()
		if n := within(memory - time.Second/2); n != 31 {
			t.Errorf("%d ticks after an end, want 31", n)
		}
		time.Sleep(time.Second)
		if n := within(10 * time.Minute); n != 20 {
			t.Errorf("%d ticks in 10 idle minutes, want 20", n)
		}
		stop()
		<-done
		one.eventMonitor.backOff.ticker.Stop()
	})
}

// A containerd with other fields is an error.
func TestOfAnother(t *testing.T) {
	one := &owner{&monitor{&backOff{}}}
	for _, other := range []any{nil, &struct{}{}, &struct{ eventMonitor *monitor }{},
		&struct {
			eventMonitor struct{ backOff struct{ ticker int } }
		}{}} {
		if _, err := Of(&cri{one}, other); err == nil || !strings.Contains(err.Error(), "containerd") {
			t.Errorf("%T: %v", other, err)
		}
	}
}
