package processors

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth/internal/base/eventually"
)

// An idle process has one processor, and all of them again at activity, when it uses CPU time, and when Run has ended.
func TestRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	p := New()
	p.period, p.little = 500*time.Millisecond, 50*time.Millisecond
	p.all = func() { runtime.GOMAXPROCS(3) }
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx) })
	rests := func() {
		t.Helper()
		eventually.True(t, "one processor", func() bool { return runtime.GOMAXPROCS(0) == 1 })
	}
	rests()
	p.Stir()
	if got := runtime.GOMAXPROCS(0); got != 3 {
		t.Errorf("%d processors after an activity, want 3", got)
	}
	rests()
	got := 1
	for began := time.Now(); got == 1 && time.Since(began) < 10*time.Second; got = runtime.GOMAXPROCS(0) {
		for range 1000 {
			sink++
		}
	}
	if got != 3 {
		t.Errorf("%d processors for a process that uses one, want 3", got)
	}
	rests()
	stop()
	running.Wait()
	if got := runtime.GOMAXPROCS(0); got != 3 {
		t.Errorf("%d processors after Run, want 3", got)
	}
}

var sink int // keeps the compiler from leaving a loop out

// CPU time that is used slowly does not end a rest.
func TestSlowUseIsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		p.watching = true // no thread looks at the real CPU time
		follow := func() (context.CancelFunc, <-chan error) {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- p.followRest(ctx) }()
			time.Sleep(2 * period)
			p.used.Wake()
			synctest.Wait()
			select {
			case err := <-ended:
				t.Fatalf("the rest has ended: %v", err)
			default:
			}
			return stop, ended
		}
		stop, ended := follow()
		stop()
		if err := <-ended; err == nil {
			t.Error("the rest has ended because of activity, want the end of the context")
		}
		stop, ended = follow()
		defer stop()
		time.Sleep(period / 2)
		p.used.Wake()
		if err := <-ended; err != nil {
			t.Errorf("CPU time that was used fast: %v, want the end of the rest", err)
		}
	})
}

// The processors that GOMAXPROCS sets come back after a rest.
func TestEveryOne(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(5))
	t.Setenv("GOMAXPROCS", "5")
	all := everyOne()
	runtime.GOMAXPROCS(1)
	if all(); runtime.GOMAXPROCS(0) != 5 {
		t.Errorf("%d processors, want 5", runtime.GOMAXPROCS(0))
	}
	t.Setenv("GOMAXPROCS", "")
	runtime.GOMAXPROCS(5)
	if everyOne()(); runtime.GOMAXPROCS(0) != min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) {
		t.Errorf("%d processors, want at most %d", runtime.GOMAXPROCS(0), runtime.NumCPU())
	}
}
