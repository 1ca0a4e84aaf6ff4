package test

import (
	"crypto/sha256"
	"sync"
	"testing"
	"time"
)

// pace knows how long a fixed piece of work takes on this machine at best. It tells how much slower the machine is at
// another moment, because other programs use its CPUs too.
type pace struct {
	mu   sync.Mutex
	best time.Duration
}

var machinePace pace

// work is a fixed piece of work, of less than a millisecond on a quiet machine.
func work() { sha256.Sum256(make([]byte, 256<<10)) }

// took records how long one piece of work took, and returns the shortest time so far.
func (p *pace) took(d time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.best == 0 || d < p.best {
		p.best = d
	}
	return p.best
}

// Beside f, the pieces of work come in bursts, with a rest between them. A burst is longer than the time for which the
// kernel prefers a thread that has just slept, so it sees the machine as busy as other programs do. All bursts together
// take a tenth of a CPU from them.
const (
	paceBurst = 20 * time.Millisecond
	paceRest  = 9 * paceBurst
)

// during runs f, and works beside it now and then. It returns how long f took, and how many times longer than at best
// the work took meanwhile: 1 on a quiet machine.
func (p *pace) during(f func()) (took time.Duration, slowdown float64) {
	for range 20 {
		began := time.Now()
		work()
		p.took(time.Since(began))
	}
	began := time.Now()
	pieces, worked := p.beside(f)
	took = time.Since(began)
	return took, max(1, float64(worked)/float64(time.Duration(pieces)*p.took(time.Hour)))
}

// beside runs f, and works in another goroutine until f has returned or ended its own goroutine. It returns how many
// pieces of work were done, at least one, and how long they took.
func (p *pace) beside(f func()) (pieces int, worked time.Duration) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			// The first burst has a piece of work also where the kernel lets nothing run for longer than a burst.
			for began := time.Now(); pieces == 0 || time.Since(began) < paceBurst; pieces++ {
				each := time.Now()
				work()
				worked += time.Since(each)
				p.took(time.Since(each))
			}
			select {
			case <-done:
				return
			case <-time.After(paceRest):
			}
		}
	}()
	defer func() {
		close(done)
		<-ended
	}()
	f()
	return // the goroutine sets both
}

func TestPaceSeesThatTheMachineIsBusy(t *testing.T) {
	var p pace
	p.took(time.Nanosecond) // as if the machine had been much quicker before
	took, slowdown := p.during(func() { time.Sleep(20 * time.Millisecond) })
	if took < 20*time.Millisecond || slowdown < 1000 {
		t.Errorf("took %v, slowdown %v", took, slowdown)
	}
}
