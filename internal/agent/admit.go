package agent

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/admission"
	"github.com/berth-run/berth/internal/event"
	"github.com/berth-run/berth/internal/fleet"
	"github.com/berth-run/berth/internal/object"
	"github.com/berth-run/berth/internal/pod"
	"github.com/berth-run/berth/internal/podstatus"
	"github.com/berth-run/berth/internal/reason"
	"github.com/berth-run/berth/internal/timeline"
	"github.com/berth-run/berth/internal/userns"
)

// gatekeeper asks admission about pods, and opens the timeline of each that is
// to come up.
type gatekeeper struct {
	recorder *timeline.Recorder
	provider trace.TracerProvider
	observed func(types.UID) *pod.Observed
	status   func(types.UID) corev1.PodStatus // as last known, also by an earlier agent
	kept     func(types.UID) corev1.PodStatus // the same, as far as a pod goes on from it
	began    time.Time                        // of this agent
	decide   func(*pod.Pod, []fleet.Other) admission.Answer
	preempt  func(types.UID)
	counts   admissionCounts

	events interface {
		Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
	}

	mu   sync.Mutex
	open map[types.UID]*question
}

// question is an admission that has no final answer: its span, and in it the
// wait for what the last answer named.
type question struct {
	ctx   context.Context
	span  trace.Span
	waits string
	done  func()
}

func (g *gatekeeper) admit(p *pod.Pod, others []fleet.Other) fleet.Verdict {
	if phase := g.kept(p.UID).Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
		return fleet.Verdict{Admit: true, Ended: true}
	}
	answer := g.decide(p, others)
	v := verdict(answer)
	if podstatus.WasRefused(g.status(p.UID), podstatus.Refusal{Reason: v.Reason, Message: v.Message, Final: v.Reject}) {
		return v // as an earlier agent has told
	}
	for _, uid := range answer.Preempt {
		g.counts.preemptions.WithLabelValues(strings.TrimPrefix(answer.Reason, "OutOf")).Inc()
		g.preempt(uid)
	}
	q := g.question(p)
	switch {
	case v.Admit:
		g.answer(p.UID, nil)
	case v.Reject:
		g.answer(p.UID, reason.New(v.Reason, "%s", v.Message))
		g.counts.rejections.WithLabelValues(admission.MetricReason(v.Reason)).Inc()
		g.events.Event(event.PodRef(p.Pod), corev1.EventTypeWarning, v.Reason, "%s", v.Message)
	case q.waits != v.Message:
		q.done()
		q.waits, q.done = v.Message, timeline.Wait(q.ctx, strings.TrimPrefix(v.Message, "waiting for "))
		kind := corev1.EventTypeNormal
		if v.Blocked {
			kind = corev1.EventTypeWarning
		}
		g.events.Event(event.PodRef(p.Pod), kind, v.Reason, "%s", v.Message)
	}
	return v
}

// answer ends the admission of a pod, also of one that is gone before.
func (g *gatekeeper) answer(uid types.UID, err error) {
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
func (g *gatekeeper) question(p *pod.Pod) *question {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q, ok := g.open[p.UID]; ok {
		return q
	}
	ctx := context.Background()
	last, recorded := g.recorder.Get(p.UID)
	if begins(g.observed(p.UID), g.kept(p.UID), last, recorded) {
		start := *p
		if start.Seen.Before(g.began) { // an earlier agent, perhaps before a reboot, knew it already
			start.Seen = g.began
		}
		ctx, _ = timeline.StartPod(ctx, g.provider, &start)
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
	return !slices.ContainsFunc(o.ContainersOf(), func(c pod.ContainerStatus) bool { return c.State == pod.StateRunning })
}

// decideAdmission asks the rules about one pod.
func (a *Agent) decideAdmission(p *pod.Pod, others []fleet.Other) admission.Answer {
	answer, _ := admission.Admit(beside(a.admissionInput(p), others))
	return answer
}

// beside adds the pods that hold something.
func beside(in admission.In, others []fleet.Other) admission.In {
	for _, o := range others {
		in.Admitted = append(in.Admitted, admission.PodInfo{Pod: o.Pod.Pod, Terminating: o.Terminating, EndsBy: o.EndsBy})
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

// pluginPatience is how long a device plugin may take to come back after the
// agent began or a pod appeared: as long as a kubelet keeps the devices of a
// plugin that is gone.
const pluginPatience = 5 * time.Minute

func (a *Agent) admissionInput(p *pod.Pod) admission.In {
	c := admission.Config{
		Standalone: true, Taints: a.config.Node.Taints, UnsafeSysctls: a.config.Pods.AllowedUnsafeSysctls, AppArmor: appArmor(),
		SupplementalGroupsPolicy: a.engine.features.GetSupplementalGroupsPolicy(),
	}
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil && a.engine.embedded != nil {
		c.NoSELinux = "the embedded runtime sets none; use a containerd that does (enable_selinux)"
	}
	if userns.Wanted(p.Pod) {
		if err := a.engine.checkUserns(a.config); err != nil {
			c.NoUserNamespaces = err.Error()
		}
	}
	c.Handlers = a.engine.handlers
	since := p.Seen
	if since.Before(a.began) {
		since = a.began
	}
	return allotted(a.steps.allocations, admission.In{
		Pod: p.Pod, Node: a.facts, RuntimeClass: object.New(a.sources.Objects).RuntimeClass, Config: c,
		Now: time.Now(), PluginsBy: since.Add(pluginPatience),
	})
}

// appArmor says that the kernel enforces it.
func appArmor() bool {
	text, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(text), "Y")
}
