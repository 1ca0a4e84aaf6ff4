package podstatus

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
)

// Load reads the statuses that an earlier agent kept. It is called once, before
// the first Update. What could be read counts also when there is an error.
func (s *Statuses) Load() error {
	if s.files == nil {
		return nil
	}
	all, err := s.files.LoadAll()
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, status := range all {
		s.saved[types.UID(uid)] = status
	}
	if err != nil {
		return fmt.Errorf("load pod statuses: %w", err)
	}
	return nil
}

// Retain forgets what Load has read of pods that are not wanted any more.
func (s *Statuses) Retain(wanted func(types.UID) bool) {
	s.mu.Lock()
	gone := maps.Clone(s.saved)
	s.mu.Unlock()
	for uid := range gone {
		if !wanted(uid) {
			s.Forget(uid)
		}
	}
}

// Run writes the statuses to disk when they change, and once more when ctx ends.
// A write that fails is tried again with the next change or after the delay; a
// full disk is told once.
func (s *Statuses) Run(ctx context.Context) error {
	if s.files == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	for {
		select {
		case <-ctx.Done():
			s.flush()
			return ctx.Err()
		case <-s.wake:
			s.flush()
		}
		select {
		case <-ctx.Done():
		case <-time.After(s.opts.Delay):
		}
	}
}

// save keeps a status. A power cut ends all containers, so that what is then
// lost of a running pod is made anew; but one that has ended must not run again.
func (s *Statuses) save(uid types.UID, status corev1.PodStatus) error {
	if status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed {
		return s.files.Save(string(uid), status)
	}
	return s.files.SaveUnsynced(string(uid), status)
}

// touch marks a pod whose file is out of date.
func (s *Statuses) touch(uid types.UID) {
	if s.files == nil {
		return
	}
	s.mu.Lock()
	s.dirty[uid] = struct{}{}
	s.mu.Unlock()
	s.awake()
}

func (s *Statuses) awake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// flush brings the files to the rows.
func (s *Statuses) flush() {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	dirty := s.dirty
	s.dirty = map[types.UID]struct{}{}
	s.mu.Unlock()
	failed := 0
	var last error
	for uid := range dirty {
		var err error
		if status, ok := s.table.Get(uid); ok {
			err = s.save(uid, status)
		} else {
			err = s.files.DeleteUnsynced(string(uid))
		}
		if err != nil {
			failed, last = failed+1, err
			s.touch(uid)
		}
	}
	switch {
	case failed > 0:
		s.tellFailed(failed, last)
	case len(dirty) > 0:
		s.failing = false
	}
}

// tellFailed tells that statuses are not kept, unless the last write failed as well.
// It is for the holder of disk.
func (s *Statuses) tellFailed(pods int, err error) {
	if !s.failing {
		s.opts.Log.Error("keep pod statuses; they are written when there is room again",
			"pods", pods, "disk full", checkpoint.IsDiskFull(err), "err", err)
	}
	s.failing = true
}
