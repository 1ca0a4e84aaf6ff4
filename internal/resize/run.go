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
func (s *Resizes) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			s.flush()
			return ctx.Err()
		case <-s.wake:
		}
		select {
		case <-ctx.Done():
		case <-time.After(keepDelay):
		}
		s.flush()
	}
}

// touch marks a pod whose file is out of date; mu is held.
func (s *Resizes) touch(uid types.UID) {
	s.dirty[uid] = true
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// flush brings the files up to date. One that cannot be written is tried again
// with the next change.
func (s *Resizes) flush() {
	s.mu.Lock()
	dirty := s.dirty
	s.dirty = map[types.UID]bool{}
	s.mu.Unlock()
	for uid := range dirty {
		if err := s.save(uid); err != nil {
			s.opts.Log.Warn("keep what is allocated to a pod; it is written again with the next change", "uid", uid, "err", err)
			s.mu.Lock()
			s.dirty[uid] = true
			s.mu.Unlock()
		}
	}
}

// save makes a pod's file what its record is now.
func (s *Resizes) save(uid types.UID) error {
	s.files.Lock()
	defer s.files.Unlock()
	s.mu.Lock()
	e := s.pods[uid]
	var r record
	if e != nil {
		r = e.record
	}
	s.mu.Unlock()
	if e == nil {
		return s.disk.Delete(string(uid))
	}
	return s.disk.Save(string(uid), r)
}
