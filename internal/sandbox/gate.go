package sandbox

import (
	"context"
	"sync"
	"time"
)

// Places is a Gate with a number of places. Who stays in one for longer than
// its patience loses it and goes on without: a call that hangs does not keep the
// other pods of the node from starting.
type Places struct {
	free     chan struct{}
	patience time.Duration
}

// NewPlaces makes a Gate of n places.
func NewPlaces(n int, patience time.Duration) *Places {
	return &Places{free: make(chan struct{}, n), patience: patience}
}

// Enter waits for a place.
func (p *Places) Enter(ctx context.Context) (leave func(), err error) {
	select {
	case p.free <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	release := sync.OnceFunc(func() { <-p.free })
	lost := time.AfterFunc(p.patience, release)
	return func() { lost.Stop(); release() }, nil
}
