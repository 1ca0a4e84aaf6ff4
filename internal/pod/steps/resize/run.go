package resize

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// saveDelay is how long changes are collected before they are written. A granted resize is written at once.
const saveDelay = 200 * time.Millisecond

// Run writes changed records to disk, and once more when ctx ends.
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
		case <-s.wake.C():
		}
		select {
		case <-ctx.Done():
		case <-time.After(saveDelay):
		}
		s.flush()
	}
}

// flush writes the changed files. A file that cannot be written is written again after the next change.
func (s *ledger) flush() {
	s.mu.Lock()
	dirty := s.dirty
	s.dirty = map[types.UID]bool{}
	s.mu.Unlock()
	for uid := range dirty {
		if err := s.save(uid); err != nil {
			s.log.Warn("save allocated resources of a pod failed, retrying after the next change", "uid", uid, "err",
				err)
			s.mu.Lock()
			s.dirty[uid] = true
			s.mu.Unlock()
		}
	}
}
