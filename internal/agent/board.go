package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/telemetry"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/podstatus"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/timeline"
)

// board shows users the pods of the node: it has each pod's status computed when
// something about it changed, and is the only writer of the table that the local
// API serves.
type board struct {
	fleet    *fleet.Fleet
	statuses *podstatus.Statuses
	// told is given each status for the API server, if there is one.
	told func(fleet.Member, corev1.PodStatus)
	// starts counts what it takes to start a pod.
	starts   *telemetry.Starts
	timeline *timeline.Recorder
	pods     *server.Pods
	// input fills in what the steps know of a pod.
	input func(fleet.Member, *podstatus.Input)
	// forget drops what the steps remember of a pod for its status.
	forget func(types.UID)

	rounds atomic.Uint64 // of all pods, numbered as they begin
	mu     sync.Mutex
	shown  map[types.UID]shown
	last   map[types.UID]uint64 // the round that told of a pod last
}

// shown is what the row of a pod was made from.
type shown struct {
	pod      *pod.Pod
	deleting bool
}

// refresh brings the row of a pod up to date that the fleet has. Others than the
// fleet may know of a pod before it, or longer: that is no news of its end.
func (b *board) refresh(uid types.UID) {
	if _, here := b.fleet.Member(uid); here {
		b.update(uid)
	}
}

// update brings the row of a pod up to date, or removes it with the pod. It is the
// fleet's to call.
func (b *board) update(uid types.UID) {
	for again := false; !b.round(uid, again); again = true {
	}
}

// round computes the status of a pod and tells it. Several may be under way for
// one pod: what was computed earlier is never told later. It says false when it
// was overtaken by one that began after it, which may not have told what this one
// has changed; the next is to tell in any case (again).
func (b *board) round(uid types.UID, again bool) bool {
	mine := b.rounds.Add(1)
	m, ok := b.fleet.Member(uid)
	if !ok {
		b.remove(uid)
		return true
	}
	in := podstatus.Input{Pod: m.Pod}
	if m.Working || m.Gone {
		in.Stop, in.Plan = m.State.Stop, &m.State.Plan
		in.Terminated = m.State.Stage >= worker.Cleaning
	} else if !m.Verdict.Admit {
		in.Refused = &podstatus.Refusal{Reason: m.Verdict.Reason, Message: m.Verdict.Message, Final: m.Verdict.Reject}
	}
	b.input(m, &in)
	status, changed := b.statuses.Update(in)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.current(uid):
		return true // it went meanwhile: its row goes with it
	case b.last[uid] > mine:
		return false
	}
	b.last[uid] = mine
	b.told(m, status)
	b.starts.Status(m.Pod, status)
	if d := m.Desired; d != nil && d.Source == pod.SourceAPI {
		b.starts.Shown(m.Pod, d.Status)
	} else {
		b.starts.Shown(m.Pod, status)
	}
	b.finish(uid, status)
	if m.Pod.Namespace == "" {
		return true // leftovers of a pod whose name is not known
	}
	deleting := in.Stop != nil && in.Stop.Remove
	wanted := cmp.Or(m.Desired, m.Pod) // which may ask for more than it was given
	now := shown{wanted, deleting}
	if !changed && !again && b.shown[uid] == now {
		return true
	}
	key := m.Pod.Key()
	if row, taken := b.pods.Get(key); taken && row.UID != uid && b.current(row.UID) {
		return true // the name is shown for its predecessor until that is gone
	}
	b.shown[uid] = now
	b.pods.Put(key, view(wanted.Pod, status, in.Stop))
	return true
}

func (b *board) current(uid types.UID) bool {
	_, ok := b.fleet.Member(uid)
	return ok
}

// view is a pod with its status, and with the marks of a deletion under way.
func view(p *corev1.Pod, status corev1.PodStatus, stop *pod.Stop) *corev1.Pod {
	row := *p
	row.Status = status
	if stop != nil && stop.Remove && row.DeletionTimestamp == nil {
		row.DeletionTimestamp = &metav1.Time{Time: stop.At}
		grace := row.Spec.TerminationGracePeriodSeconds
		if stop.Grace != nil {
			grace = new(int64(stop.Grace.Seconds()))
		}
		row.DeletionGracePeriodSeconds = grace
	}
	return &row
}

// remove forgets a pod that is gone for good and lets a successor of its name
// be shown.
func (b *board) remove(uid types.UID) {
	b.timeline.Finish(uid, reason.New(string(pod.StopDeleted), "the pod was removed before it was ready"))
	b.statuses.Forget(uid)
	b.starts.Forget(uid)
	b.forget(uid)
	b.mu.Lock()
	was, known := b.shown[uid]
	delete(b.shown, uid)
	delete(b.last, uid)
	if known {
		if row, ok := b.pods.Get(was.pod.Key()); ok && row.UID == uid {
			b.pods.Delete(was.pod.Key())
		}
	}
	b.mu.Unlock()
}

// finish closes the pod's timeline at its first readiness, or at its end.
func (b *board) finish(uid types.UID, s corev1.PodStatus) {
	switch {
	case s.Phase == corev1.PodFailed:
		b.timeline.Finish(uid, reason.New(cmp.Or(s.Reason, "Failed"), "%s", cmp.Or(s.Message, failures(s))))
	case s.Phase == corev1.PodSucceeded, podstatus.Ready(s):
		b.timeline.Finish(uid, nil)
	}
}

// failures says which containers of a failed pod are to blame.
func failures(s corev1.PodStatus) string {
	var texts []string
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		if e := c.State.Terminated; e != nil && e.ExitCode != 0 {
			texts = append(texts, fmt.Sprintf("container %s ended with exit code %d", c.Name, e.ExitCode))
		}
	}
	return strings.Join(texts, "; ")
}
