package gate

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/admission"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/podstatus"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline"
)

// Options of a Gate.
type Options struct {
	// Refuses says that no pods are taken now, whatever the rules say.
	Refuses func(*pod.Pod) (fleet.Verdict, bool)
	// Input is what the rules go by, without the other pods.
	Input    func(*pod.Pod) admission.In
	Observed func(types.UID) *pod.Observed
	// Status is as last known, also by an earlier agent; Kept the same, as far as a
	// pod goes on from it.
	Status, Kept func(types.UID) corev1.PodStatus
	// Began is when this agent did.
	Began time.Time
	// Preempt ends a pod to make room.
	Preempt func(types.UID)
	// Stop ends a pod.
	Stop     func(types.UID, pod.Stop)
	Recorder *timeline.Recorder
	Provider trace.TracerProvider
	Metrics  prometheus.Registerer
	Events   interface {
		Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
	}
}

// Gate asks admission about pods, and opens the timeline of each that is to come
// up.
type Gate struct {
	Options
	counts counts

	mu   sync.Mutex
	open map[types.UID]*question
}

// New makes a gate.
func New(o Options) *Gate {
	return &Gate{Options: o, counts: newCounts(o.Metrics), open: map[types.UID]*question{}}
}

// question is an admission that has no final answer: its span, and in it the
// wait for what the last answer named.
type question struct {
	ctx   context.Context
	span  trace.Span
	waits string
	done  func()
}

// Admit implements fleet.Options.
func (g *Gate) Admit(p *pod.Pod, others []fleet.Other) fleet.Verdict {
	if phase := g.Kept(p.UID).Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
		return fleet.Verdict{Admit: true, Ended: true}
	}
	answer := admission.Answer{}
	v, refused := g.Refuses(p)
	if !refused {
		answer, _ = admission.Admit(Beside(g.Input(p), others))
		v = verdict(answer)
	}
	if podstatus.WasRefused(g.Status(p.UID), podstatus.Refusal{Reason: v.Reason, Message: v.Message, Final: v.Reject}) {
		return v // as an earlier agent has told
	}
	for _, uid := range answer.Preempt {
		g.counts.preemptions.WithLabelValues(strings.TrimPrefix(answer.Reason, "OutOf")).Inc()
		g.Preempt(uid)
	}
	q := g.question(p)
	switch {
	case v.Admit:
		g.answer(p.UID, nil)
	case v.Reject:
		g.answer(p.UID, reason.New(v.Reason, "%s", v.Message))
		g.counts.rejections.WithLabelValues(admission.MetricReason(v.Reason)).Inc()
		g.Events.Event(event.PodRef(p.Pod), corev1.EventTypeWarning, v.Reason, "%s", v.Message)
	case q.waits != v.Message:
		q.done()
		q.waits, q.done = v.Message, timeline.Wait(q.ctx, strings.TrimPrefix(v.Message, "waiting for "))
		kind := corev1.EventTypeNormal
		if v.Blocked {
			kind = corev1.EventTypeWarning
		}
		g.Events.Event(event.PodRef(p.Pod), kind, v.Reason, "%s", v.Message)
	}
	return v
}

// Reject takes back that a pod was admitted: what it needs has turned out not to be
// there. It ends at once and is Failed.
func (g *Gate) Reject(p *corev1.Pod, why, message string) {
	g.counts.rejections.WithLabelValues(admission.MetricReason(why)).Inc()
	g.Events.Event(event.PodRef(p), corev1.EventTypeWarning, why, "%s", message)
	g.Stop(p.UID,
		pod.Stop{Reason: pod.StopReason(why), Message: "Pod was rejected: " + message, Grace: new(time.Duration(0)), At: time.Now()})
}

// Forget drops what is known of a pod that is gone.
func (g *Gate) Forget(uid types.UID) { g.answer(uid, nil) }

// answer ends the admission of a pod, also of one that is gone before.
func (g *Gate) answer(uid types.UID, err error) {
	g.mu.Lock()
	q := g.open[uid]
	delete(g.open, uid)
	g.mu.Unlock()
	if q != nil {
		q.done()
		timeline.End(q.span, err)
	}
}

// question is the admission of a pod, from the first time it was asked for.
func (g *Gate) question(p *pod.Pod) *question {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q, ok := g.open[p.UID]; ok {
		return q
	}
	ctx := context.Background()
	last, recorded := g.Recorder.Get(p.UID)
	if begins(g.Observed(p.UID), g.Kept(p.UID), last, recorded) {
		start := *p
		if start.Seen.Before(g.Began) { // an earlier agent, perhaps before a reboot, knew it already
			start.Seen = g.Began
		}
		ctx, _ = timeline.StartPod(ctx, g.Provider, &start)
	}
	q := &question{done: func() {}}
	q.ctx, q.span = timeline.Start(ctx, "admission")
	g.open[p.UID] = q
	return q
}

// begins says whether a pod has a start to be shown: it is new to this node, it
// went with a reboot, or an earlier agent ended before it was ready.
func begins(o *pod.Observed, status corev1.PodStatus, last timeline.Timeline, recorded bool) bool {
	if status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed {
		return false
	}
	if _, up := o.Sandbox(); !up {
		return true
	}
	if recorded {
		return last.State() == timeline.StateInterrupted
	}
	return !slices.ContainsFunc(o.ContainersOf(), func(c pod.ContainerStatus) bool {
		return c.State == pod.StateRunning
	})
}

// Beside adds the pods that hold something.
func Beside(in admission.In, others []fleet.Other) admission.In {
	for _, o := range others {
		in.Admitted = append(in.Admitted,
			admission.PodInfo{Pod: o.Pod.Pod, Terminating: o.Terminating, EndsBy: o.EndsBy})
	}
	return in
}

// verdict is an answer in the fleet's words.
func verdict(answer admission.Answer) fleet.Verdict {
	v := fleet.Verdict{Reason: answer.Reason, Message: answer.Message, Again: answer.Until, Reserve: answer.Reserve}
	switch answer.Verdict {
	case admission.Admitted:
		return fleet.Verdict{Admit: true}
	case admission.Rejected:
		v.Reject = true
	case admission.Blocked:
		v.Blocked = true
	case admission.NotYet: // asked again at Until
	}
	return v
}
