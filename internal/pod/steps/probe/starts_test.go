package probe

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// processor is a machine with two CPUs that runs commands. All commands that run get the same part of its time.
type processor struct {
	mu   sync.Mutex
	left map[chan struct{}]time.Duration // CPU time that each command still needs; it is closed then
}

const (
	cpus    = 2
	quantum = 5 * time.Millisecond
)

func (p *processor) work(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(quantum)
		p.mu.Lock()
		part := min(quantum, quantum*cpus/time.Duration(max(1, len(p.left))))
		for done := range p.left {
			if p.left[done] -= part; p.left[done] <= 0 {
				delete(p.left, done)
				close(done)
			}
		}
		p.mu.Unlock()
	}
}

// run runs a command. It reports whether the command ended within the timeout.
func (p *processor) run(need, timeout time.Duration) bool {
	done := make(chan struct{})
	p.mu.Lock()
	p.left[done] = need
	p.mu.Unlock()
	select {
	case <-done:
		return true
	case <-time.After(timeout):
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.left, done)
		return false
	}
}

// Thirty probes a second need nearly five CPUs, and the machine has two. Nearly all that start must end in time, only
// not every second. With a hold that does not follow their ends, six in a minute did.
func TestProbesThatStarveEachOtherRecover(t *testing.T) {
	const probes, need, timeout, period = 30, 160 * time.Millisecond, time.Second, time.Second
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &processor{left: map[chan struct{}]time.Duration{}}
		var work, users sync.WaitGroup
		work.Go(func() { p.work(ctx) })
		s := newStarts(4)
		settled := time.Now().Add(time.Minute)
		end := settled.Add(time.Minute)
		var inTime, late atomic.Int64
		for range probes {
			users.Go(func() {
				for now := time.Now(); now.Before(end); now = time.Now() {
					leave := s.enter(ctx)
					ok := p.run(need, timeout)
					leave(!ok)
					switch {
					case now.Before(settled):
					case ok:
						inTime.Add(1)
					default:
						late.Add(1)
					}
					time.Sleep(time.Until(now.Add(period)))
				}
			})
		}
		users.Wait()
		cancel()
		work.Wait()
		const most = 60 * cpus * time.Second / need // what the machine can do in a minute
		if inTime.Load() < 9*int64(most)/10 || late.Load() > int64(most)/20 {
			t.Errorf("%d probes ended in time and %d late in a minute; the machine can do %d", inTime.Load(),
				late.Load(), most)
		}
	})
}

func TestHoldFollowsTheEndsOfProbes(t *testing.T) {
	s := newStarts(1)
	for range 10 {
		s.learn(true)
	}
	if s.hold != holdMost {
		t.Errorf("hold %v after probes that were late, want %v", s.hold, holdMost)
	}
	for range 3 * decay {
		s.learn(false)
	}
	if s.hold != holdLeast {
		t.Errorf("hold %v after probes that ended in time, want %v", s.hold, holdLeast)
	}
}
