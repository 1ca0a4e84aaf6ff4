package resize

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
)

// saveDelay is how long changes are collected before they are written. A granted resize is written at once.
const saveDelay = 200 * time.Millisecond

// Run writes changed records to disk, and once more when ctx ends. It drops the records of pods that are not known when
// all desired pods are.
func (s *ledger) Run(ctx context.Context) error {
	var retaining sync.WaitGroup
	defer retaining.Wait()
	retaining.Go(func() {
		select {
		case <-s.synced:
			s.retain()
		case <-ctx.Done():
		}
	})
	return checkpoint.SaveLater(ctx, s.wake.C(), checkpoint.Delay{Before: saveDelay}, s.flush)
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
	if err := mirror(s); err != nil {
		s.log.Error("save allocated resources for a kubelet failed; one that takes over may grant deferred resizes",
			"err", err)
	}
}
