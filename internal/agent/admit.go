package agent

import (
	"context"
	"os"
	"sync"

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
// new to the node.
type gatekeeper struct {
	recorder *timeline.Recorder
	provider trace.TracerProvider
	known    func(types.UID) bool // the runtime has something of the pod
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
	if !g.known(p.UID) { // a pod that runs already has no start to be shown
		ctx, _ = timeline.StartPod(ctx, g.provider, p)
	}
	_, span := timeline.Start(ctx, "admission")
	g.spans[p.UID] = span
	return span
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
