package foundation

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// Foundation is the set of parts that run until Stop. New makes one.
type Foundation struct {
	ctx     context.Context // of all parts
	cancel  context.CancelFunc
	group   *errgroup.Group
	onEnded func()
}

// New returns a foundation without parts. The parts end with ctx at the latest. onEnded is called when a part ends.
func New(ctx context.Context, onEnded func()) *Foundation {
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	return &Foundation{ctx: ctx, cancel: cancel, group: group, onEnded: onEnded}
}

// Launch starts a part.
func (f *Foundation) Launch(run func(context.Context) error) {
	f.group.Go(func() error {
		defer f.onEnded()
		return run(f.ctx)
	})
}

// Stop ends all parts, waits for them, and returns the first error of a part.
func (f *Foundation) Stop() error {
	f.cancel()
	return Ended(f.group.Wait())
}

// Ended returns nil for the error of a cancelled context, since that is how a part normally ends.
func Ended(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
