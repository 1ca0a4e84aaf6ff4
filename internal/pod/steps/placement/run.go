package placement

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
)

const (
	// retry is the time between attempts to move a container that could not be moved.
	retry = time.Second
	// patience is how long the runtime may take for one container: others wait for
	// it, and those that start.
	patience = 3 * time.Second
)

// Run follows the ledger and what the runtime shows, until ctx ends: it books
// what runs already, releases what has ended by itself, moves who is to move and
// tells the runtime.
func (s *Placements) Run(ctx context.Context) error {
	w := s.opts.Observed.Watch()
	defer w.Stop()
	again := time.NewTimer(0)
	again.Stop()
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.C():
			for _, c := range w.Changes() {
				s.observe(c.Key, c.Value, c.Deleted)
			}
		case <-s.opts.Changed:
			for uid, o := range s.opts.Observed.Snapshot().All() {
				s.observe(uid, o, false)
			}
		case <-s.wake:
		case <-again.C:
		}
		if err := errors.Join(s.settle(ctx), s.report(ctx)); err != nil && ctx.Err() == nil {
			s.opts.Log.Warn("Containers are not where they belong", "err", err, "again in", retry)
			again.Reset(retry)
		}
	}
}

// observe brings the bookings of a pod in line with what the runtime shows of it.
func (s *Placements) observe(uid types.UID, o *pod.Observed, gone bool) {
	running := map[string]string{} // name by id
	ended := map[string]bool{}
	for _, c := range o.ContainersOf() {
		switch c.State {
		case pod.StateRunning, pod.StateUnknown:
			running[c.ID] = c.Name
		case pod.StateExited:
			ended[c.ID] = true
		case pod.StateCreated: // PreStart books it
		}
	}
	s.mu.Lock()
	for id, b := range s.booked {
		if b.pod.UID != uid {
			continue
		}
		_, runs := running[id]
		if gone || ended[id] || b.seen && !runs {
			delete(s.booked, id)
		}
		if b.seen {
			delete(running, id)
		}
	}
	s.mu.Unlock()
	if gone || len(running) == 0 {
		return
	}
	p, ok := s.opts.Pod(uid)
	if !ok {
		return // it is ending, and nobody is moved for it
	}
	for id, name := range running {
		if s.wanted(p, name) != (place{}) {
			s.see(id, booking{pod: p, name: name, seen: true})
		}
	}
}

// see notes a container that runs. What it has in the kernel counts: one that was
// moved while it started may have missed it.
func (s *Placements) see(id string, b booking) {
	s.moving.Lock()
	defer s.moving.Unlock()
	b.at.cpus, b.at.mems, _ = s.opts.Cgroups.Pinned(b.pod, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.booked[id]; was != nil {
		b.told = was.told
		if b.at.cpus == "" {
			b.at = was.at
		}
	}
	s.booked[id] = &b
}

// report tells the runtime where containers are that were moved in the kernel.
// Who starts waits for one of them at most.
func (s *Placements) report(ctx context.Context) error {
	var errs []error
	for id, b := range s.bookings() {
		if err := s.reportOne(ctx, id); err != nil {
			errs = append(errs,
				fmt.Errorf("tell the runtime the CPUs of container %q of pod %s: %w", b.name, pod.FullName(b.pod), err))
		}
	}
	return errors.Join(errs...)
}

// reportOne tells where the container is now: what was found before may have
// changed, and the runtime writes what it is told.
func (s *Placements) reportOne(ctx context.Context, id string) error {
	s.moving.Lock()
	defer s.moving.Unlock()
	b, ok := s.booking(id)
	if !ok || b.told == b.at.cpus || b.at.cpus == "" {
		return nil
	}
	if err := s.tell(ctx, id, b.at.cpus); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.booked[id]; now != nil {
		now.told = b.at.cpus
	}
	return nil
}

func (s *Placements) booking(id string) (booking, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.booked[id]; b != nil {
		return *b, true
	}
	return booking{}, false
}
