package sandbox

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Places is a Gate with a fixed number of places. Callers that enter through Ahead go first, so that begun pods are
// finished before new ones begin. A caller that stays for longer than the patience loses its place and continues
// without one: a call that hangs does not keep the other pods of the node from starting.
type Places struct {
	patience time.Duration

	mu      sync.Mutex
	free    int
	waiting [2][]chan struct{} // callers of Ahead, then all others; each channel is closed when its turn has come
}

// NewPlaces returns a Gate of n places.
func NewPlaces(n int, patience time.Duration) *Places { return &Places{free: n, patience: patience} }

// Enter waits for a place.
func (p *Places) Enter(ctx context.Context) (leave func(), err error) { return p.enter(ctx, 1) }

// Ahead returns the same gate for callers that go first.
func (p *Places) Ahead() Gate { return ahead{p} }

type ahead struct{ places *Places }

func (a ahead) Enter(ctx context.Context) (leave func(), err error) { return a.places.enter(ctx, 0) }

func (p *Places) enter(ctx context.Context, class int) (leave func(), err error) {
	p.mu.Lock()
	turn := make(chan struct{})
	if p.free > 0 {
		p.free--
		close(turn)
	} else {
		p.waiting[class] = append(p.waiting[class], turn)
	}
	p.mu.Unlock()
	select {
	case <-turn:
	case <-ctx.Done():
		p.giveUp(class, turn)
		return nil, ctx.Err()
	}
	release := sync.OnceFunc(p.release)
	lost := time.AfterFunc(p.patience, release)
	return func() { lost.Stop(); release() }, nil
}

// giveUp leaves the queue, or returns a place that became free at the same moment.
func (p *Places) giveUp(class int, turn chan struct{}) {
	p.mu.Lock()
	i := slices.Index(p.waiting[class], turn)
	if i >= 0 {
		p.waiting[class] = slices.Delete(p.waiting[class], i, i+1)
	}
	p.mu.Unlock()
	if i < 0 {
		p.release()
	}
}

// release passes a place to the next caller, or makes it free.
func (p *Places) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for class, queue := range p.waiting {
		if len(queue) > 0 {
			close(queue[0])
			p.waiting[class] = queue[1:]
			return
		}
	}
	p.free++
}
