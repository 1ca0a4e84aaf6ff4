package index

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/wake"
)

// Event is a change of a sandbox or a container. Record is its last known record.
type Event struct {
	Type   runtimeapi.ContainerEventType
	At     time.Time
	Record *Record
}

// backlog is how many events a subscriber may leave unread. With more, its stream ends, and the subscriber has to list
// everything again.
const backlog = 10_000

// broadcast has the subscribers of the CRI's events.
type broadcast struct {
	mu   sync.Mutex
	subs map[*Subscription]struct{}
}

// Subscription receives the events after its start.
type Subscription struct {
	from *broadcast
	wake wake.Signal
	mu   sync.Mutex
	all  []Event
	lost bool
}

// Subscribe starts a subscription. Close ends it.
func (x *Index) Subscribe() *Subscription {
	s := &Subscription{from: &x.events, wake: wake.New()}
	x.events.mu.Lock()
	defer x.events.mu.Unlock()
	if x.events.subs == nil {
		x.events.subs = map[*Subscription]struct{}{}
	}
	x.events.subs[s] = struct{}{}
	return s
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.from.mu.Lock()
	defer s.from.mu.Unlock()
	delete(s.from.subs, s)
}

// Next waits for events and returns them in order.
func (s *Subscription) Next(ctx context.Context) ([]Event, error) {
	for {
		s.mu.Lock()
		all, lost := s.all, s.lost
		s.all = nil
		s.mu.Unlock()
		switch {
		case lost:
			return nil, status.Errorf(codes.ResourceExhausted, "more than %d events were not read", backlog)
		case len(all) > 0:
			return all, nil
		}
		select {
		case <-s.wake.C():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (e *broadcast) publish(kind runtimeapi.ContainerEventType, before, after *Record) {
	event := Event{Type: kind, At: time.Now(), Record: after}
	if after == nil {
		event.Record = before
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.subs {
		s.add(event)
	}
}

func (s *Subscription) add(event Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= backlog {
		s.all, s.lost = nil, true
	} else if !s.lost {
		s.all = append(s.all, event)
	}
	s.wake.Wake()
}
