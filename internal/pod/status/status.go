package status

import (
	"cmp"
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/telemetry"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/podstatus"
	"github.com/berth-run/berth/internal/record/timeline"
)

// Options of Statuses. All are required but Gone.
type Options struct {
	Record *Record
	Stale  *Stale
	Fleet  *fleet.Fleet
	Source Source
	// Reporter receives each status for the API server before the row is written.
	Reporter Reporter
	Starts   *telemetry.Starts
	Timeline *timeline.Recorder
	// Gone are called in their order when a pod has left the fleet. The pod's row goes after that.
	Gone []func(types.UID)
}

// Reporter reports the status of a pod to the API server.
type Reporter interface {
	Report(fleet.Member, corev1.PodStatus)
}

// Statuses computes the status of each pod when something about the pod has changed. It is the only writer of the
// tables that the local API and the API server see.
type Statuses struct {
	opts  Options
	pods  *store.Table[types.NamespacedName, *corev1.Pod]
	turns turns

	mu    sync.Mutex
	shown map[types.UID]shown
}

// shown holds the inputs of a pod's row, besides its status.
type shown struct {
	pod      *pod.Pod
	deleting bool
}

// New returns Statuses without any pod.
func New(o Options) *Statuses {
	return &Statuses{opts: o, pods: store.New[types.NamespacedName, *corev1.Pod](),
		turns: turns{pods: map[types.UID]*turn{}}, shown: map[types.UID]shown{}}
}

// Pods is the table of pods with their statuses by name, for reading.
func (s *Statuses) Pods() *store.Table[types.NamespacedName, *corev1.Pod] { return s.pods }

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

// Publish computes, records, reports and shows the status of a pod before it returns. It removes the row of a pod that
// has left the fleet. Only the fleet calls it.
func (s *Statuses) Publish(uid types.UID) {
	defer s.turns.take(uid)()
	if m, ok := s.opts.Fleet.Member(uid); ok {
		s.publish(m)
	} else {
		s.remove(uid)
	}
}

// Refresh is Publish for parts other than the fleet. They may know of a pod before the fleet does, or longer: they
// remove nothing.
func (s *Statuses) Refresh(uid types.UID) {
	defer s.turns.take(uid)()
	if m, ok := s.opts.Fleet.Member(uid); ok {
		s.publish(m)
	}
}

// SetCondition sets a condition that podstatus.Foreign allows, and publishes the pod.
func (s *Statuses) SetCondition(uid types.UID, c corev1.PodCondition) {
	s.opts.Record.setCondition(uid, c)
	s.Refresh(uid)
}

// publish is for the holder of the pod's turn.
func (s *Statuses) publish(m fleet.Member) {
	in := place(m)
	s.opts.Source.Add(m, &in)
	status, changed := s.opts.Record.update(in)
	s.opts.Reporter.Report(m, status)
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
	for _, gone := range s.opts.Gone {
		gone(uid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.shown[uid]
	delete(s.shown, uid)
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
