package allocation

import "context"

// Run looks at what all pods hold that run since before this agent, and ends.
func (s *Allocations) Run(ctx context.Context) error {
	for _, synced := range s.opts.Synced {
		select {
		case <-synced:
		case <-ctx.Done():
			return nil
		}
	}
	s.Look()
	close(s.settled)
	return nil
}

// After holds back who moves containers until it is known what pods hold: nobody
// is taken the CPUs that the ledger has lost.
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
