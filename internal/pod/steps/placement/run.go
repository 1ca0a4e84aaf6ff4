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
	// retry is the delay before a failed move is repeated.
	retry = time.Second
	// patience limits one call of the runtime. Starts of containers and other reports wait for the call.
	patience = 3 * time.Second
)

// Run follows the ledger and the observed pods until ctx ends. It records running containers, drops the records of
// ended ones, moves containers to their CPUs and reports the moves to the runtime.
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
		case <-s.wake.C():
		case <-again.C:
		}
		if err := errors.Join(joined(s.settle(ctx)), s.report(ctx)); err != nil && ctx.Err() == nil {
			s.opts.Log.Warn("move containers to their CPUs failed, retrying", "err", err, "delay", retry)
			again.Reset(retry)
		}
	}
}

// observe updates the records of a pod from the runtime's report.
func (s *Placements) observe(uid types.UID, o *pod.Observed, gone bool) {
	running := map[string]string{} // name by id
	ended := map[string]bool{}
	for _, c := range o.ContainersOf() {
		switch c.State {
		case pod.StateRunning, pod.StateUnknown:
			running[c.ID] = c.Name
		case pod.StateExited:
			ended[c.ID] = true
		case pod.StateCreated: // PreStart records it
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
	p, ok := s.opts.Pods.Pod(uid)
	if !ok {
		return // the pod is ending, so its containers stay where they are
	}
	for id, name := range running {
		if s.wanted(p, name) != (place{}) {
			s.see(id, booking{pod: p, name: name, seen: true})
		}
	}
}

// see records a running container with the CPUs that it has in the kernel. A container that was moved during its start
// may have missed the move.
func (s *Placements) see(id string, b booking) {
	s.moving.Lock()
	defer s.moving.Unlock()
	b.at.cpus, b.at.mems, _ = s.opts.Cgroups.Pinned(b.pod, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.booked[id]; was != nil {
		b.reported = was.reported
		if b.at.cpus == "" {
			b.at = was.at
		}
	}
	s.booked[id] = &b
}

// report notifies the runtime of containers that were moved in the kernel. A start waits for at most one of these
// calls.
func (s *Placements) report(ctx context.Context) error {
	var errs []error
	for id, b := range s.bookings() {
		if err := s.reportOne(ctx, id); err != nil {
			errs = append(errs,
				fmt.Errorf("report the CPUs of container %q of pod %s to the runtime: %w", b.name, pod.FullName(b.pod),
					err))
		}
	}
	return errors.Join(errs...)
}

// reportOne reports where the container is now, since the copy of report may be out of date.
func (s *Placements) reportOne(ctx context.Context, id string) error {
	s.moving.Lock()
	defer s.moving.Unlock()
	b, ok := s.booking(id)
	if !ok || b.reported == b.at.cpus || b.at.cpus == "" {
		return nil
	}
	if err := s.notify(ctx, id, b.at.cpus); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.booked[id]; now != nil {
		now.reported = b.at.cpus
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
