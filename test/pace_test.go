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

// during runs f, and works beside it all the time. It returns how long f took, and how many times longer than at best
// the work took meanwhile: 1 on a quiet machine.
func (p *pace) during(f func()) (took time.Duration, slowdown float64) {
	for range 20 {
		began := time.Now()
		work()
		p.took(time.Since(began))
	}
	began := time.Now()
	n := p.beside(f)
	took = time.Since(began)
	ideal := time.Duration(max(1, n)) * p.took(time.Hour)
	return took, max(1, float64(took)/float64(ideal))
}

// beside runs f, and works in another goroutine until f has returned or ended its own goroutine. It returns how many
// pieces of work were done.
func (p *pace) beside(f func()) (pieces int) {
	done, counted := make(chan struct{}), make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				counted <- n
				return
			default:
			}
			began := time.Now()
			work()
			p.took(time.Since(began))
		}
	}()
	defer func() {
		close(done)
		pieces = <-counted
	}()
	f()
	return // the deferred function sets the number
}

func TestPaceSeesThatTheMachineIsBusy(t *testing.T) {
	var p pace
	p.took(time.Nanosecond) // as if the machine had been much quicker before
	took, slowdown := p.during(func() { time.Sleep(20 * time.Millisecond) })
	if took < 20*time.Millisecond || slowdown < 1000 {
		t.Errorf("took %v, slowdown %v", took, slowdown)
	}
}
