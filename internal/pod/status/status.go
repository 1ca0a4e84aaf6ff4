package status

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/guard"
	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/telemetry"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/podstatus"
	"github.com/berth-run/berth/internal/record/timeline"
)

// Options of Statuses. All are required but Keepers.
type Options struct {
	Record *Record
	Stale  *Stale
	Fleet  *fleet.Fleet
	Source Source
	// Reporter receives each status for the API server before the row is written.
	Reporter Reporter
	// Asides are the pods that are set aside.
	Asides   Asides
	Starts   *telemetry.Starts
	Timeline *timeline.Recorder
	// Keepers forget a pod, in their order, when it has left the fleet. The pod's row goes after that.
	Keepers []Keeper
}

// Keeper is a part that keeps something about each pod.
type Keeper interface {
	// Forget drops what the part keeps about a pod.
	Forget(types.UID)
}

// Reporter reports the status of a pod to the API server.
type Reporter interface {
	Report(fleet.Member, corev1.PodStatus)
}

// Asides are the pods that are set aside, because the work on them has panicked.
type Asides interface {
	// Panicked sets a pod aside and returns when the next try may begin.
	Panicked(p *corev1.Pod, part string, e *guard.Panic) time.Time
	// Condition returns the condition of a pod that is set aside. ok is false for other pods.
	Condition(types.UID) (c corev1.PodCondition, ok bool)
}

// Statuses computes the status of each pod when something about the pod has changed. It is the only writer of the
// tables that the local API and the API server see.
type Statuses struct {
	opts Options
	pods *store.Table[types.NamespacedName, *corev1.Pod]
	// turns lets one goroutine at a time publish a pod, so that a status computed from older facts never replaces one
	// computed from newer facts.
	turns lock.Keyed

	mu    sync.Mutex
	shown map[types.UID]shown
	// behind holds the pods whose row is due when the row of the pod with the key has gone, because they have its name.
	behind map[types.UID][]types.UID
	// broken holds the pods whose status could not be computed, with the time of the next try.
	broken map[types.UID]time.Time
}

// shown holds the inputs of a pod's row, besides its status.
type shown struct {
	pod      *pod.Pod
	deleting bool
}

// New returns Statuses without any pod.
func New(o Options) *Statuses {
	return &Statuses{opts: o, pods: store.New[types.NamespacedName, *corev1.Pod](),
		shown: map[types.UID]shown{}, behind: map[types.UID][]types.UID{}, broken: map[types.UID]time.Time{}}
}

// Pods is the table of pods with their statuses by name, for reading.
func (s *Statuses) Pods() *store.Table[types.NamespacedName, *corev1.Pod] { return s.pods }

// Restore shows pods with the statuses that an earlier agent has saved, for commands on a node without an agent.
func (s *Statuses) Restore(pods []*pod.Pod) {
	for _, p := range pods {
		status := s.opts.Record.Last(p.UID)
		if status.Phase == "" { // no agent has seen the pod yet
			status = p.Status
		}
		s.pods.Put(p.Key(), row(p.Pod, status, nil))
	}
}

// Run publishes the pods in Stale, until ctx ends.
func (s *Statuses) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.opts.Stale.marks.C():
		}
		pods, all := s.opts.Stale.take()
		if all {
			for _, p := range s.opts.Fleet.Pods() {
				if _, marked := pods[p.UID]; !marked {
					pods[p.UID] = false
				}
			}
		}
		for uid, plan := range pods {
			s.Refresh(uid)
			if plan {
				s.opts.Fleet.Wake(uid)
			}
		}
	}
}

// Publish computes, records, reports and shows the status of a pod before it returns. For that it waits until the
// termination messages of the pod are read, up to readPatience. It removes the row of a pod that has left the fleet.
// Only the goroutine of the pod's worker calls it.
func (s *Statuses) Publish(uid types.UID) { await(func() *reading { return s.publishNow(uid) }) }

// PublishNow is Publish for the fleet's loop, which serves all pods: it waits for nothing that a pod can delay. While a
// termination message is being read, it leaves the status as it is, and Run publishes the pod after that.
func (s *Statuses) PublishNow(uid types.UID) { s.publishNow(uid) }

func (s *Statuses) publishNow(uid types.UID) (wait *reading) {
	defer s.turn(uid)()
	if m, ok := s.opts.Fleet.Member(uid); ok {
		return s.publish(m)
	}
	s.remove(uid)
	return nil
}

// Refresh is PublishNow for parts other than the fleet. They may know of a pod before the fleet does, or longer: they
// remove nothing.
func (s *Statuses) Refresh(uid types.UID) { s.refresh(uid) }

func (s *Statuses) refresh(uid types.UID) (wait *reading) {
	defer s.turn(uid)()
	if m, ok := s.opts.Fleet.Member(uid); ok {
		return s.publish(m)
	}
	return nil
}

// await repeats publish until it waits for no reading any more.
func await(publish func() *reading) {
	for wait := publish(); wait != nil; wait = publish() {
		select {
		case <-wait.done:
		case <-wait.overdue:
		}
	}
}

// SetCondition sets a condition that podstatus.Foreign allows, and publishes the pod.
func (s *Statuses) SetCondition(uid types.UID, c corev1.PodCondition) {
	s.opts.Record.setCondition(uid, c)
	await(func() *reading { return s.refresh(uid) })
}

// turn waits for the turn of a pod. The caller must give it back with the returned function.
func (s *Statuses) turn(uid types.UID) (giveBack func()) {
	giveBack, _ = s.turns.Lock(context.Background(), string(uid)) // fails only with its context
	return giveBack
}

// publish is for the holder of the pod's turn. It does nothing and returns the reading that the status waits for, if
// there is one.
//
// After a panic it sets the pod aside, and shows the previous status with the condition of a pod that is set aside.
func (s *Statuses) publish(m fleet.Member) (wait *reading) {
	uid := m.Pod.UID
	if s.isBroken(uid) {
		return nil
	}
	p := guard.Of(guard.Call(func() error { wait = s.compute(m); return nil }))
	if p == nil {
		return wait
	}
	until := s.opts.Asides.Panicked(m.Pod.Pod, "status", p)
	s.mu.Lock()
	s.broken[uid] = until
	s.mu.Unlock()
	s.opts.Fleet.WakeAside(uid)
	_ = guard.Call(func() error { s.showBroken(m); return nil }) // the panic before is reported already
	return nil
}

// isBroken reports whether the status of a pod is not computed now, because that panicked not long ago.
func (s *Statuses) isBroken(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, broken := s.broken[uid]
	if broken && !time.Now().Before(until) {
		delete(s.broken, uid)
		return false
	}
	return broken
}

// showBroken publishes the previous status of a pod whose status cannot be computed.
func (s *Statuses) showBroken(m fleet.Member) {
	c, ok := s.opts.Asides.Condition(m.Pod.UID)
	if !ok {
		return
	}
	status := s.opts.Record.putCondition(m.Pod.UID, c)
	if m.Pod.Namespace != "" {
		s.show(m, status, place(m).Stop, true)
	}
	s.opts.Reporter.Report(m, status)
}

func (s *Statuses) compute(m fleet.Member) (wait *reading) {
	guard.Point("status", m.Pod.Namespace, m.Pod.Name)
	in := place(m)
	s.opts.Source.Add(m, &in)
	c, setAside := s.opts.Asides.Condition(m.Pod.UID)
	if setAside {
		in.Extra = append(in.Extra, c)
	}
	status, changed, wait := s.opts.Record.update(in)
	if wait != nil {
		return wait
	}
	// The API server gets no status of a pod before admission has answered: the answer follows at once.
	if m.Working || m.Verdict.Given() || setAside {
		s.opts.Reporter.Report(m, status)
	}
	s.opts.Starts.Status(m.Pod, status)
	if d := m.Desired; d != nil && d.Source == pod.SourceAPI {
		s.opts.Starts.Shown(m.Pod, d.Status)
	} else {
		s.opts.Starts.Shown(m.Pod, status)
	}
	s.finish(m.Pod.UID, status)
	if m.Pod.Namespace != "" { // leftovers of an unknown pod have no name
		s.show(m, status, in.Stop, changed)
	}
	return nil
}

// show writes the row of a pod if it differs from the row that is there. A pod whose name is still shown for its
// predecessor is shown after that is gone.
func (s *Statuses) show(m fleet.Member, status corev1.PodStatus, stop *pod.Stop, changed bool) {
	uid, key := m.Pod.UID, m.Pod.Key()
	wanted := cmp.Or(m.Desired, m.Pod) // a resize may ask for more than the pod has
	now := shown{wanted, stop != nil && stop.Remove}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !changed && s.shown[uid] == now {
		return
	}
	if other, there := s.pods.Get(key); there && other.UID != uid {
		if _, here := s.opts.Fleet.Member(other.UID); here {
			if !slices.Contains(s.behind[other.UID], uid) {
				s.behind[other.UID] = append(s.behind[other.UID], uid)
			}
			return
		}
	}
	s.shown[uid] = now
	s.pods.Put(key, row(wanted.Pod, status, stop))
}

// remove forgets a pod that has left the fleet. Its row goes last.
func (s *Statuses) remove(uid types.UID) {
	s.opts.Timeline.Finish(uid, reason.New(string(pod.StopDeleted), "the pod was removed before it was ready"))
	s.opts.Record.forget(uid)
	s.opts.Starts.Forget(uid)
	for _, k := range s.opts.Keepers {
		k.Forget(uid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.shown[uid]
	for _, next := range s.behind[uid] {
		s.opts.Stale.Mark(next)
	}
	delete(s.behind, uid)
	delete(s.shown, uid)
	delete(s.broken, uid)
	if !known {
		return
	}
	if row, ok := s.pods.Get(last.pod.Key()); ok && row.UID == uid {
		s.pods.Delete(last.pod.Key())
	}
}

// finish closes the timeline of a pod when the pod is ready for the first time, or has ended.
func (s *Statuses) finish(uid types.UID, status corev1.PodStatus) {
	switch {
	case status.Phase == corev1.PodFailed:
		s.opts.Timeline.Finish(uid,
			reason.New(cmp.Or(status.Reason, "Failed"), "%s", cmp.Or(status.Message, failures(status))))
	case status.Phase == corev1.PodSucceeded, podstatus.Ready(status):
		s.opts.Timeline.Finish(uid, nil)
	}
}
