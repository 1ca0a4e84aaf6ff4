package sandbox

import "context"

// Places is a Gate with a number of places; nil has no bound.
type Places chan struct{}

// Enter waits for a place.
func (p Places) Enter(ctx context.Context) (func(), error) {
	if p == nil {
		return func() {}, nil
	}
	select {
	case p <- struct{}{}:
		return func() { <-p }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
