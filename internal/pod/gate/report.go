package gate

import (
	"context"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline"
)

// inquiry is the admission of a pod that has no final answer yet. It has a span, and in that span another for the
// current wait.
type inquiry struct {
	ctx   context.Context
	span  trace.Span
	waits string
	done  func()
}

// inquiries are the open ones, by UID.
type inquiries struct {
	mu sync.Mutex
	of map[types.UID]*inquiry
}

// report records the verdict. A wait is recorded once for each message.
func (g *Gate) report(q *question) {
	if q.silent {
		return
	}
	v, ref, i := q.verdict, event.PodRef(q.pod.Pod), g.inquiry(q.pod)
	switch {
	case v.Admit:
		g.close(q.pod.UID, nil)
	case v.Reject:
		g.close(q.pod.UID, reason.New(v.Reason, "%s", v.Message))
		g.Counts.rejected(v.Reason)
		g.Events.Event(ref, corev1.EventTypeWarning, v.Reason, "%s", v.Message)
	case i.waits != v.Message:
		i.done()
		i.waits, i.done = v.Message, timeline.Wait(i.ctx, strings.TrimPrefix(v.Message, "waiting for "))
		kind := corev1.EventTypeNormal
		if v.Blocked {
			kind = corev1.EventTypeWarning
		}
		g.Events.Event(ref, kind, v.Reason, "%s", v.Message)
	}
}

// Rejecter ends pods that were admitted but turn out to lack something they need.
type Rejecter struct {
	Counts Counts
	Events event.Sink
	Pods   interface {
		Reject(uid types.UID, why, message string)
	}
}

// Reject ends a pod. It is recorded as a rejection at admission is.
func (r Rejecter) Reject(p *corev1.Pod, why, message string) {
	r.Counts.rejected(why)
	r.Events.Event(event.PodRef(p), corev1.EventTypeWarning, why, "%s", message)
	r.Pods.Reject(p.UID, why, message)
}

// Forget ends the inquiry of a pod that is gone.
func (g *Gate) Forget(uid types.UID) { g.close(uid, nil) }

// close ends the inquiry of a pod, if there is one. err is the reason of a rejection.
func (g *Gate) close(uid types.UID, err error) {
	g.open.mu.Lock()
	i := g.open.of[uid]
	delete(g.open.of, uid)
	g.open.mu.Unlock()
	if i != nil {
		i.done()
		timeline.End(i.span, err)
	}
}

// inquiry returns the inquiry of a pod, and opens it the first time.
func (g *Gate) inquiry(p *pod.Pod) *inquiry {
	g.open.mu.Lock()
	defer g.open.mu.Unlock()
	if i, ok := g.open.of[p.UID]; ok {
		return i
	}
	ctx := context.Background()
	last, recorded := g.Recorder.Get(p.UID)
	if begins(g.observed(p.UID), g.Statuses.Kept(p.UID), last, recorded) {
		start := *p
		if start.Seen.Before(g.Began) { // an earlier agent saw it first, perhaps before a reboot
			start.Seen = g.Began
		}
		ctx, _ = timeline.StartPod(ctx, g.Provider, &start)
	}
	i := &inquiry{done: func() {}}
	i.ctx, i.span = timeline.Start(ctx, "admission")
	g.open.of[p.UID] = i
	return i
}

// begins reports whether a new timeline begins for a pod. It does if the pod is new to this node or a reboot has ended
// its sandbox. It also does if an earlier agent ended before the pod was ready.
func begins(o *pod.Observed, status corev1.PodStatus, last timeline.Timeline, recorded bool) bool {
	if pod.Ended(status.Phase) {
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
