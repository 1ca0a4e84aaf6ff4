package follow

import (
	"slices"
	"time"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/cli/transfer"
)

const (
	// pullPeriod is the time between two looks at the pulls of images.
	pullPeriod = time.Second
	// pullFirst is how long a pull takes before it is worth a line; each next one
	// is after twice the time, at most pullMost later.
	pullFirst = 2 * time.Second
	pullMost  = 15 * time.Second
)

// followPulls shows how the pulls of the pods' images are going, until there are
// none. Events tell that they have begun.
func (s *session) followPulls() {
	if !s.pulling.CompareAndSwap(false, true) {
		return
	}
	s.group.Go(func() error {
		defer s.pulling.Store(false)
		ticker := time.NewTicker(pullPeriod)
		defer ticker.Stop()
		next := map[string]time.Duration{}
		for {
			select {
			case <-s.ctx.Done():
				return nil
			case <-ticker.C:
			}
			pulls, err := s.Client.Images().Pulls(s.ctx)
			pulls = slices.DeleteFunc(pulls, func(p api.Pull) bool { return !s.wants(p) })
			if err != nil || len(pulls) == 0 {
				return nil // events tell the outcome, and the watch of pods why the agent is gone
			}
			for _, p := range pulls {
				if due(next, p) {
					s.print(transfer.Text(p))
				}
			}
		}
	})
}

// wants says whether one of the pods waits for a pull.
func (s *session) wants(p api.Pull) bool {
	return slices.ContainsFunc(s.pods, func(t *track) bool { return slices.Contains(p.Pods, t.key.String()) })
}

// due says whether a pull is worth a line again.
func due(next map[string]time.Duration, p api.Pull) bool {
	elapsed := time.Duration(p.Elapsed * float64(time.Second))
	at, ok := next[p.Name]
	if !ok {
		at = pullFirst
	}
	if elapsed < at {
		return false
	}
	next[p.Name] = elapsed + min(elapsed, pullMost)
	return true
}
