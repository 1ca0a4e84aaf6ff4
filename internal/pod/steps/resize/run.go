package resize

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// keepDelay is how long changes are gathered before they are written. What a
// resize allocates is written at once.
const keepDelay = 200 * time.Millisecond

// Run writes to disk what has changed, and once more when ctx ends.
func (s *ledger) Run(ctx context.Context) error {
	synced := s.synced
	for {
		select {
		case <-ctx.Done():
			s.flush()
			return ctx.Err()
		case <-synced:
			synced = nil
			s.retain()
		case <-s.wake:
		}
		select {
		case <-ctx.Done():
		case <-time.After(keepDelay):
		}
		s.flush()
	}
}

// flush brings the files up to date. One that cannot be written is tried again
// with the next change.
func (s *ledger) flush() {
	s.mu.Lock()
	dirty := s.dirty
	s.dirty = map[types.UID]bool{}
	s.mu.Unlock()
	for uid := range dirty {
		if err := s.save(uid); err != nil {
			s.log.Warn("keep what is allocated to a pod; it is written again with the next change", "uid", uid, "err",
				err)
			s.mu.Lock()
			s.dirty[uid] = true
			s.mu.Unlock()
		}
	}
}
