package container

import (
	"context"
	"maps"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/container/handler"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline"
)

// victim is a container that is being stopped.
type victim struct {
	*ending
	pod *corev1.Pod
	c   pod.Container
	id  string
	ips []string
	// why is the message of the Killing event. Empty means that the pod ends.
	why string
	// first has a channel for each container that must end before this one. It is closed when that container has ended.
	first []<-chan struct{}
}

// ending is the progress of a container's stop. It outlives an interrupted stop, so that the next attempt continues
// instead of starting over. Only one stop at a time uses it, except for the deadline.
type ending struct {
	deadline
	announced bool
	prepared  bool      // its preStop has run
	signalled time.Time // when its stop signal was sent; zero: not yet
}

// deadline is a time that only ever moves closer. The zero value means never.
type deadline struct {
	mu        sync.Mutex
	at        time.Time
	exact     bool           // pod.Stop.Exact
	shortened wake.Broadcast // at or exact has changed
}

// follow applies the grace period of a pod that ends.
func (d *deadline) follow(r *worker.Run) { d.move(time.Now().Add(r.Grace()), r.Stop.Exact) }

func (d *deadline) shorten(at time.Time) { d.move(at, false) }

// move moves the deadline to at if that is earlier.
func (d *deadline) move(at time.Time, exact bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.at.IsZero() && !at.Before(d.at) {
		at = d.at
	}
	if at.Equal(d.at) && (d.exact || !exact) {
		return
	}
	d.at, d.exact = at, d.exact || exact
	d.shortened.Wake()
}

// least is the least time between the stop signal and the kill.
func (d *deadline) least() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.exact {
		return 0
	}
	return minStop
}

// left returns the time until the deadline, and a channel that is closed when the deadline moves closer.
func (d *deadline) left() (time.Duration, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	shortened := d.shortened.C()
	if d.at.IsZero() {
		return math.MaxInt64, shortened
	}
	return time.Until(d.at), shortened
}

// context returns a context that ends at the deadline, even if the deadline moves.
func (d *deadline) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	var watch guard.Group
	watch.Go(func() {
		defer cancel()
		for {
			left, shortened := d.left()
			timer := time.NewTimer(left)
			select {
			case <-timer.C:
				return
			case <-shortened:
				timer.Stop()
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
	})
	return ctx, func() {
		cancel()
		watch.Wait()
	}
}

// endingOf returns the progress of a container's stop.
func (s *Containers) endingOf(uid types.UID, id string) (e *ending) {
	s.with(uid, func(l *life) {
		if l.endings[id] == nil {
			l.endings[id] = &ending{}
		}
		e = l.endings[id]
	})
	return e
}

// victim collects what the stop of a container needs. A container that the spec does not have is reconstructed from the
// annotations on it.
func (s *Containers) victim(r *worker.Run, id, name string) *victim {
	v := &victim{ending: s.endingOf(r.Pod.UID, id), pod: r.Pod.Pod, id: id}
	box, _ := r.Observed.Sandbox()
	v.ips = s.podIPs(v.pod, box.IPs)
	var ok bool
	if v.c, ok = pod.FindContainer(v.pod, name); !ok {
		v.c, _ = pod.FindContainer(pod.Orphan(r.Observed).Pod, name)
	}
	return v
}

// stop ends one container: preStop, its turn, the stop signal, and the kill after its deadline. It returns nil when the
// container has ended.
func (s *Containers) stop(ctx context.Context, v *victim) (err error) {
	ctx, span := timeline.Start(ctx, "stop "+v.c.Name)
	defer func() { timeline.End(span, err) }()
	ref := event.ContainerRef(v.pod, v.c)
	if !v.announced {
		why := v.why
		if why == "" {
			why = "Stopping container " + v.c.Name
		}
		s.opts.Events.Event(ref, corev1.EventTypeNormal, reason.Killing, "%s", why)
		v.announced = true
	}
	if !v.prepared {
		s.prepare(ctx, v)
	}
	if err := v.awaitTurn(ctx); err != nil {
		return err
	}
	if left, _ := v.left(); left <= 0 {
		leave, err := s.opts.Kills.Enter(ctx, v.pod)
		if err != nil {
			return err
		}
		defer leave()
	}
	if err := s.signal(ctx, v); err != nil {
		return err
	}
	s.with(v.pod.UID, func(l *life) { delete(l.endings, v.id) })
	postStop(ctx, s, v.pod, v.c.Name, v.id)
	return nil
}

// postStop reports to the lifecycle that a container is gone, once for each instance.
func postStop(ctx context.Context, s *Containers, p *corev1.Pod, name, id string) {
	done := false
	s.with(p.UID, func(l *life) { done, l.released[id] = l.released[id], true })
	if done {
		return
	}
	for _, l := range s.opts.Lifecycle {
		if l.PostStop == nil {
			continue
		}
		if err := l.PostStop(ctx, id); err != nil {
			s.opts.Log.Warn("PostStop of a container failed, ignored", "pod", pod.FullName(p), "container", name,
				"err", err)
		}
	}
}

// unreleased returns the last instances of containers that have ended by themselves and whose end the lifecycle does
// not know. It forgets the instances that the runtime no longer has.
func unreleased(s *Containers, uid types.UID, o *pod.Observed) (all []pod.ContainerStatus) {
	s.with(uid, func(l *life) {
		maps.DeleteFunc(l.released, func(id string, _ bool) bool { return nameOf(o, id) == "" })
		for _, c := range o.ContainersOf() {
			last, _ := o.Container(c.Name)
			if c.ID == last.ID && c.State == pod.StateExited && !l.released[c.ID] {
				all = append(all, c)
			}
		}
	})
	return all
}

// prepare runs everything that comes before the stop signal, until the grace period ends.
func (s *Containers) prepare(ctx context.Context, v *victim) {
	graced, cancel := v.context(ctx)
	defer cancel()
	for _, l := range s.opts.Lifecycle {
		if l.PreStop == nil {
			continue
		}
		if err := l.PreStop(graced, v.id); err != nil {
			s.opts.Log.Warn("PreStop of a container failed, stopping it anyway", "pod", pod.FullName(v.pod),
				"container", v.c.Name, "err", err)
		}
	}
	if left, _ := v.left(); left > 0 && v.c.Lifecycle != nil && v.c.Lifecycle.PreStop != nil {
		t := handler.Target{Pod: v.pod, Container: v.c, ID: v.id, IPs: v.ips, Timeout: left}
		err := s.handlers.Run(graced, t, "preStop", v.c.Lifecycle.PreStop)
		if err != nil && ctx.Err() == nil {
			s.opts.Log.Warn("preStop handler failed, stopping the container anyway", "pod", pod.FullName(v.pod),
				"container", v.c.Name, "err", err)
			// The event has no details: the handler's output may hold secrets of the container.
			s.opts.Events.Event(event.ContainerRef(v.pod, v.c), corev1.EventTypeWarning, reason.FailedPreStopHook,
				"PreStopHook failed")
		}
	}
	v.prepared = ctx.Err() == nil
}

// awaitTurn waits until the containers that must end first have ended, or until the deadline.
func (v *victim) awaitTurn(ctx context.Context) error {
	graced, cancel := v.context(ctx)
	defer cancel()
	for _, ended := range v.first {
		select {
		case <-ended:
		case <-graced.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}

// signal stops the container through the runtime. If the deadline moves closer meanwhile, it calls the runtime again
// with a shorter timeout.
func (s *Containers) signal(ctx context.Context, v *victim) error {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan error)
	var calls guard.Group
	defer calls.Wait()
	defer cancel()
	call := func() (shortened <-chan struct{}) {
		left, shortened := v.left()
		since := time.Duration(-1)
		if v.signalled.IsZero() {
			v.signalled = time.Now()
		} else {
			since = time.Since(v.signalled)
		}
		req := &runtimeapi.StopContainerRequest{ContainerId: v.id, Timeout: stopTimeout(left, since, v.least())}
		calls.Go(func() {
			_, err := s.opts.Runtime.StopContainer(ctx, req)
			select {
			case results <- err:
			case <-ctx.Done():
			}
		})
		return shortened
	}
	shortened, pending := call(), 1
	for {
		select {
		case err := <-results:
			if err == nil || cri.IsNotFound(err) {
				return nil
			}
			if pending--; pending == 0 {
				v.signalled = time.Time{} // the signal may never have been sent
				return err
			}
		case <-shortened:
			shortened = call()
			pending++
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
