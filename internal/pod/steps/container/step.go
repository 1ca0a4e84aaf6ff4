package container

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline"
)

// Step is the step that carries out the container part of a pod's plan.
func (s *Containers) Step() worker.Step {
	return worker.Step{
		Name: "container", Phase: worker.Act, After: []string{"volume"},
		Setup:    func(ctx context.Context, r *worker.Run) error { return s.setup(ctx, r, r.Tasks) },
		Teardown: s.teardown, Patience: patience,
	}
}

// patience is how long the start of a container may take with its image pull and its postStart handler, which alone may
// take an hour.
const patience = 6 * time.Hour

// tasks is the part of worker.Tasks that this package uses.
type tasks interface {
	Go(ctx context.Context, key string, f func(context.Context) error) bool
	Running(key string) bool
}

// taskOf returns the task key of a container. Two tasks with the same key never run at the same time.
func taskOf(name string) string { return "container/" + name }

// setup begins each stop, removal and start of the plan as a task of its own. It leaves running tasks alone.
func (s *Containers) setup(ctx context.Context, r *worker.Run, tasks tasks) error {
	waits := awaited(r.Pod.Pod, r.Plan)
	s.with(r.Pod.UID, func(l *life) { waits = append(waits, l.missing()...) })
	s.showWaits(ctx, r.Pod.UID, waits)
	s.reportBackOffs(r)
	for _, k := range r.Plan.Kill {
		if s.upToDate(r, k.Name) {
			tasks.Go(ctx, taskOf(k.Name), func(ctx context.Context) error { return s.kill(ctx, r, k) })
		}
	}
	for _, c := range unreleased(s, r.Pod.UID, r.Observed) {
		if !slices.ContainsFunc(r.Plan.Start, func(st plan.Start) bool { return st.Name == c.Name }) {
			tasks.Go(ctx, taskOf(c.Name), func(ctx context.Context) error {
				postStop(ctx, s, r.Pod.Pod, c.Name, c.ID)
				return nil
			})
		} // otherwise its next start does it
	}
	// Dead containers are removed first. A container that is started again removes its own dead instances. All others
	// are removed here, in the plan's order.
	replaced := map[string][]string{}
	var removed []string
	for _, id := range r.Plan.Remove {
		name := nameOf(r.Observed, id)
		if slices.ContainsFunc(r.Plan.Start, func(st plan.Start) bool { return st.Name == name }) {
			replaced[name] = append(replaced[name], id)
		} else {
			removed = append(removed, id)
		}
	}
	if len(removed) > 0 {
		tasks.Go(ctx, "containers/remove", func(ctx context.Context) error { return s.remove(ctx, r, removed) })
	}
	if len(r.Plan.Start) == 0 {
		return nil
	}
	sandbox, config, ips, ok := s.opts.Sandboxes.Sandbox(r.Pod.UID)
	if !ok {
		return nil // the sandbox has vanished again: the next plan creates one
	}
	for _, st := range r.Plan.Start {
		// Most starts of a pod with many containers run already, and wait for their turn.
		if tasks.Running(taskOf(st.Name)) || !s.upToDate(r, st.Name) {
			continue
		}
		l := &launch{
			s: s, pod: r.Pod.Pod, observed: r.Observed, want: st, replaces: replaced[st.Name],
			sandboxID: sandbox, sandbox: config, ips: s.podIPs(r.Pod.Pod, ips), grace: r.Grace(),
		}
		s.begin(ctx, r, tasks, l)
	}
	return nil
}

// showWaits makes names the waits that the pod's timeline shows from now on. It ends all others.
func (s *Containers) showWaits(ctx context.Context, uid types.UID, names []string) {
	s.with(uid, func(l *life) {
		for name, done := range l.waits {
			if !slices.Contains(names, name) {
				done()
				delete(l.waits, name)
			}
		}
		for _, name := range names {
			if l.waits[name] == nil {
				l.waits[name] = timeline.Wait(ctx, name)
			}
		}
	})
}

// begin begins a start as a task, after the containers that come before it in the pod's order.
func (s *Containers) begin(ctx context.Context, r *worker.Run, tasks tasks, l *launch) {
	name, mine := l.want.Name, make(chan struct{})
	before := waitsFor(l.want, r.Plan.Start, r.Observed, l.sandboxID)
	s.with(r.Pod.UID, func(life *life) {
		for _, other := range before {
			if gate, ok := life.gates[other]; ok {
				l.turns = append(l.turns, gate)
			}
		}
	})
	l.open = sync.OnceFunc(func() { close(mine) })
	if tasks.Go(ctx, taskOf(name), l.run) {
		s.with(r.Pod.UID, func(life *life) { life.gates[name] = mine })
	}
}

// upToDate reports whether the observed state that the plan was made from includes the last change to the container.
func (s *Containers) upToDate(r *worker.Run, name string) (ok bool) {
	s.with(r.Pod.UID, func(l *life) { ok = l.effects[name].seenIn(r.Observed) })
	return ok
}

func nameOf(o *pod.Observed, id string) string {
	for _, c := range o.ContainersOf() {
		if c.ID == id {
			return c.Name
		}
	}
	return ""
}

// remove removes dead containers one after the other.
func (s *Containers) remove(ctx context.Context, r *worker.Run, ids []string) error {
	var err error
	for _, id := range ids {
		if err = s.removeOne(ctx, r.Pod.Pod, nameOf(r.Observed, id), id); err != nil {
			break
		}
	}
	refresh, cancel := settled(ctx)
	defer cancel()
	return errors.Join(err, s.opts.Observer.Refresh(refresh, r.Pod.UID))
}

func (s *Containers) removeOne(ctx context.Context, p *corev1.Pod, name, id string) error {
	ctx, cancel := settled(ctx)
	defer cancel()
	_, err := s.opts.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	if err != nil && !cri.IsNotFound(err) {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	s.unlinkLog(p, name, id)
	return nil
}

// kill stops one container of a pod that keeps running.
func (s *Containers) kill(ctx context.Context, r *worker.Run, k plan.Kill) error {
	if k.Replace {
		if err := s.opts.Replacements.Replace(r.Pod.UID, k.Name, k.ID); err != nil {
			return fmt.Errorf("write down that container %q must be replaced: %w", k.Name, err)
		}
	}
	grace := r.Grace()
	if k.Grace != nil {
		grace = time.Duration(*k.Grace) * time.Second
	}
	v := s.victim(r, k.ID, k.Name)
	v.why = k.Why
	v.shorten(time.Now().Add(grace))
	if err := s.stop(ctx, v); err != nil {
		return fmt.Errorf("stop container %q: %w", k.Name, err)
	}
	return s.changed(ctx, r.Pod.UID, k.Name, effect{id: k.ID, state: pod.StateExited})
}

// teardown stops all running containers of the pod. Dead containers are removed with their sandbox. Their log links,
// which lie elsewhere, are removed here.
func (s *Containers) teardown(ctx context.Context, r *worker.Run) error {
	s.showWaits(ctx, r.Pod.UID, nil)
	for _, c := range unreleased(s, r.Pod.UID, r.Observed) {
		postStop(ctx, s, r.Pod.Pod, c.Name, c.ID)
	}
	if turns := stopOrder(r.Pod.Pod, r.Observed); len(turns) > 0 {
		if err := s.stopAll(ctx, r, turns); err != nil {
			return err
		}
	}
	if r.Stop.Remove {
		for _, c := range r.Observed.ContainersOf() {
			s.unlinkLog(r.Pod.Pod, c.Name, c.ID)
		}
	}
	return nil
}

// stopAll stops containers in their order. Each call continues where an interrupted or failed one ended, so a grace
// period does not start over.
func (s *Containers) stopAll(ctx context.Context, r *worker.Run, turns []turn) error {
	victims := make([]*victim, len(turns))
	ended := map[string]chan struct{}{}
	for i, t := range turns {
		v := s.victim(r, t.id, t.name)
		v.follow(r)
		victims[i], ended[t.id] = v, make(chan struct{})
	}
	errs := make([]error, len(turns))
	var stops, watch guard.Group
	for i, t := range turns {
		for _, id := range t.after {
			victims[i].first = append(victims[i].first, ended[id])
		}
		stops.Go(func() {
			defer close(ended[t.id])
			if err := s.stop(ctx, victims[i]); err != nil {
				errs[i] = fmt.Errorf("stop container %q: %w", t.name, err)
			}
		})
	}
	all := make(chan struct{})
	watch.Go(func() { shortenAll(r, victims, all) })
	func() {
		defer watch.Wait()
		defer close(all)
		stops.Wait()
	}()
	if err := errors.Join(errs...); err != nil {
		if ctx.Err() == nil {
			s.opts.Events.Event(event.PodRef(r.Pod.Pod), corev1.EventTypeWarning, reason.FailedKillPod,
				"error killing pod: %v", err)
		}
		return err
	}
	return s.opts.Observer.Refresh(ctx, r.Pod.UID)
}

// shortenAll applies later stops, which may shorten the grace period, to the stops that run.
func shortenAll(r *worker.Run, victims []*victim, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case stop := <-r.Stops:
			later := *r
			later.Stop = &stop
			for _, v := range victims {
				v.follow(&later)
			}
		}
	}
}

// backOffAgain is the shortest time between two events about the delay of the same restart. A kubelet checks a pod
// that backs off as often.
const backOffAgain = 10 * time.Second

// backOff is the last event about the delayed restart of a container.
type backOff struct {
	id string // of the instance that crashed
	at time.Time
}

// reportBackOffs records an event for each crashed container whose restart is delayed: after the crash, and in later
// passes.
func (s *Containers) reportBackOffs(r *worker.Run) {
	for _, w := range r.Plan.Waiting {
		if w.Reason != reason.CrashLoopBackOff {
			continue
		}
		crashed, seen := r.Observed.Container(w.Name)
		c, known := pod.FindContainer(r.Pod.Pod, w.Name)
		if !seen || !known {
			continue
		}
		due := false
		s.with(r.Pod.UID, func(l *life) {
			last := l.backedOff[w.Name]
			if due = last.id != crashed.ID || time.Since(last.at) >= backOffAgain; due {
				l.backedOff[w.Name] = backOff{crashed.ID, time.Now()}
			}
		})
		if due {
			s.opts.Events.Event(event.ContainerRef(r.Pod.Pod, c), corev1.EventTypeWarning, reason.BackOff,
				"Back-off restarting failed container %s in pod %s_%s(%s)", w.Name, r.Pod.Name, r.Pod.Namespace,
				r.Pod.UID)
		}
	}
}
