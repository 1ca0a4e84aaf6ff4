package follow

import (
	"slices"
	"time"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/cli/transfer"
)

const (
	// pullPeriod is the time between two requests for the progress of image pulls.
	pullPeriod = time.Second
	// pullFirst is how long a pull must take before its progress is shown. The time to each further line
	// doubles, up to pullMost.
	pullFirst = 2 * time.Second
	pullMost  = 15 * time.Second
)

// followPulls shows the progress of the pods' image pulls until none is left. An event starts it.
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
				return nil // events report the result, and the watch of pods reports a lost agent
			}
			for _, p := range pulls {
				if due(next, p) {
					s.screen.print(transfer.State(p).Line())
				}
			}
		}
	})
}

// wants reports whether one of the pods waits for a pull.
func (s *session) wants(p api.Pull) bool {
	return slices.ContainsFunc(s.pods, func(t *track) bool { return slices.Contains(p.Pods, t.key.String()) })
}

// due reports whether to show the progress of a pull now. next holds the time of the next line for each
// pull.
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
