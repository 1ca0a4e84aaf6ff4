package agent

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/admission"
	"github.com/berth-run/berth/internal/fleet"
	"github.com/berth-run/berth/internal/pod"
	"github.com/berth-run/berth/internal/reason"
	"github.com/berth-run/berth/internal/timeline"
)

// gatekeeper asks admission about pods, and opens the timeline of each that is
// to come up.
type gatekeeper struct {
	recorder *timeline.Recorder
	provider trace.TracerProvider
	observed func(types.UID) *pod.Observed
	status   func(types.UID) corev1.PodStatus // as last known, also by an earlier agent
	began    time.Time                        // of this agent
	decide   func(*pod.Pod, []fleet.Other) fleet.Verdict

	mu    sync.Mutex
	spans map[types.UID]trace.Span // of the admissions that have no final answer
}

func (g *gatekeeper) admit(p *pod.Pod, others []fleet.Other) fleet.Verdict {
	span := g.span(p)
	v := g.decide(p, others)
	var err error
	if v.Reject {
		err = reason.New(v.Reason, "%s", v.Message)
	}
	if v.Admit || v.Reject {
		g.mu.Lock()
		delete(g.spans, p.UID)
		g.mu.Unlock()
		timeline.End(span, err)
	}
	return v
}

// span is the admission of a pod, from the first time it was asked for.
func (g *gatekeeper) span(p *pod.Pod) trace.Span {
	g.mu.Lock()
	defer g.mu.Unlock()
	if span, ok := g.spans[p.UID]; ok {
		return span
	}
	ctx := context.Background()
	last, recorded := g.recorder.Get(p.UID)
	if begins(g.observed(p.UID), g.status(p.UID), last, recorded) {
		start := *p
		if start.Seen.Before(g.began) { // an earlier agent, perhaps before a reboot, knew it already
			start.Seen = g.began
		}
		ctx, _ = timeline.StartPod(ctx, g.provider, &start)
	}
	_, span := timeline.Start(ctx, "admission")
	g.spans[p.UID] = span
	return span
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
func (a *Agent) decideAdmission(p *pod.Pod, others []fleet.Other) fleet.Verdict {
	in := a.admissionInput(p.Pod)
	for _, o := range others {
		info := admission.PodInfo{Pod: o.Pod.Pod, Terminating: o.Terminating}
		in.Admitted = append(in.Admitted, info)
	}
	answer, _ := admission.Admit(in)
	v := fleet.Verdict{Reason: answer.Reason, Message: answer.Message, Again: answer.Until}
	switch answer.Verdict {
	case admission.Admitted:
		return fleet.Verdict{Admit: true}
	case admission.Rejected:
		v.Reject, v.Message = true, answer.StatusMessage()
	case admission.NotYet: // asked again at Until
	}
	return v
}

func (a *Agent) admissionInput(p *corev1.Pod) admission.In {
	_, err := os.Stat("/sys/kernel/security/apparmor")
	return admission.In{Pod: p, Node: a.facts, Config: admission.Config{
		Standalone: true, UnsafeSysctls: a.config.Pods.AllowedUnsafeSysctls, AppArmor: err == nil,
		SupplementalGroupsPolicy: a.engine.features.GetSupplementalGroupsPolicy(),
	}}
}
