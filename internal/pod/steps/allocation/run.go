package allocation

import "context"

// Run restores the allocations of all pods that ran before this agent started, and returns.
func (s *Allocations) Run(ctx context.Context) error {
	for _, synced := range s.opts.Synced {
		select {
		case <-synced:
		case <-ctx.Done():
			return nil
		}
	}
	s.Restore()
	close(s.settled)
	return nil
}

// After returns a loop that starts run when the allocations of running pods have been restored. Otherwise run could
// move other containers to CPUs that a pod holds.
func (s *Allocations) After(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-s.settled:
			return run(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}
