package gate

import (
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/admission"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline"
)

// Options of a Gate. All are required.
type Options struct {
	Inputs   Inputs
	Observed *store.Table[types.UID, *pod.Observed]
	Statuses Statuses
	Shutdown Shutdown
	// Evictions are the pods that an earlier agent was evicting.
	Evictions Evictions
	// Labels is used only for pods of the API server.
	Labels    Labels
	Devices   Devices
	Ledger    Ledger
	Resources Resources
	Pods      Pods
	// Began is when this agent started.
	Began    time.Time
	Now      func() time.Time
	Recorder *timeline.Recorder
	Provider trace.TracerProvider
	Counts   Counts
	Events   event.Sink
	Log      *slog.Logger
}

// Inputs collects what the rules depend on.
type Inputs interface {
	// Of returns the input of the rules about a pod, without the other pods.
	Of(*pod.Pod) admission.In
}

// Statuses are the statuses of pods that earlier agents and this one have published.
type Statuses interface {
	// Last is the last status of a pod; Kept is the part of it that the pod continues from after a restart of the
	// agent. Both are empty for a pod without one.
	Last(types.UID) corev1.PodStatus
	Kept(types.UID) corev1.PodStatus
}

// Shutdown knows whether the machine shuts down.
type Shutdown interface {
	// Refuses returns the verdict for a pod while the machine shuts down, and false otherwise.
	Refuses(*pod.Pod) (fleet.Verdict, bool)
}

// Evictions knows the pods whose eviction an earlier agent has begun.
type Evictions interface {
	// Evicting returns the stop of such a pod, or nil.
	Evicting(types.UID) *pod.Stop
}

// Labels keeps the labels of the Node object current.
type Labels interface {
	// Confirm reads the Node object from the API server soon. It returns at once.
	Confirm()
}

// Devices are the devices of device plugins.
type Devices interface {
	// WithoutExchanges calls f while no device is exchanged for one that a plugin prefers.
	WithoutExchanges(f func())
}

// Ledger records the CPUs, the memory of NUMA nodes and the devices that belong to one pod alone.
type Ledger interface {
	// Restore books the resources of running containers that are missing in the ledger.
	Restore()
	// Book allocates for a pod beside others. It writes the allocation to disk first.
	Book(p *corev1.Pod, beside []types.UID) error
	// Reserve reserves the resources that a pod will get once all pods but the staying ones have ended. Drop ends the
	// reservation.
	Reserve(p *corev1.Pod, staying []types.UID)
	Drop(types.UID)
	// Free releases what a pod holds.
	Forget(types.UID)
	// Refused counts a rejection in the metrics.
	Refused(why, message string)
}

// Resources are the CPU and memory that the node has allocated to pods (KEP-1287).
type Resources interface {
	// Allocate returns the pod to run for a desired one. alone and beside say what the node lacks for it, by itself and
	// beside other pods; "" for nothing.
	Allocate(want *pod.Pod, alone, beside func(*pod.Pod) string) *pod.Pod
	// Admitted writes down the resources of an admitted pod.
	Admitted(*pod.Pod)
}

// Pods ends pods.
type Pods interface {
	Preempt(types.UID)
}

// Gate takes pods through admission.
type Gate struct {
	Options
	stages []Stage
	// requests are used by the fleet's goroutine alone.
	requests requests
	open     inquiries
}

// New makes a gate.
func New(o Options) *Gate {
	g := &Gate{Options: o, requests: requests{}, open: inquiries{of: map[types.UID]*inquiry{}}}
	g.stages = g.Stages()
	return g
}

// Allocate implements fleet.Admission.
func (g *Gate) Allocate(want *pod.Pod, others []fleet.Other) *pod.Pod {
	return g.Resources.Allocate(want,
		func(p *pod.Pod) string { return g.lacks(p, nil) },
		func(p *pod.Pod) string { return g.lacks(p, others) })
}

// lacks returns a message about the requests of a pod that the node cannot meet beside others. It returns "" if the pod
// fits.
func (g *Gate) lacks(p *pod.Pod, others []fleet.Other) string {
	if answer := admission.Fits(g.input(p, others)); answer.Verdict != admission.Admitted {
		return answer.Message
	}
	return ""
}

// input returns the input of the rules about a pod beside others.
func (g *Gate) input(p *pod.Pod, others []fleet.Other) admission.In {
	in := Beside(g.Inputs.Of(p), others)
	g.requests.fill(in.Admitted)
	return in
}

func (g *Gate) observed(uid types.UID) *pod.Observed {
	o, _ := g.Observed.Get(uid)
	return o
}

// Beside adds to the input of the rules the pods that hold resources.
func Beside(in admission.In, others []fleet.Other) admission.In {
	in.Admitted = slices.Grow(in.Admitted, len(others))
	for _, o := range others {
		in.Admitted = append(in.Admitted,
			admission.PodInfo{Pod: o.Pod.Pod, Terminating: o.Terminating, EndsBy: o.EndsBy})
	}
	return in
}

// verdict translates an answer of the rules for the fleet.
func verdict(answer admission.Answer) fleet.Verdict {
	v := fleet.Verdict{Reason: answer.Reason, Message: answer.Message, Again: answer.Until, Reserve: answer.Reserve}
	switch answer.Verdict {
	case admission.Admitted:
		return fleet.Verdict{Admit: true}
	case admission.Rejected:
		v.Reject = true
	case admission.Blocked:
		v.Blocked = true
	case admission.NotYet: // the fleet runs admission again at Until
	}
	return v
}

// staying lists the pods among others that are neither ending nor preempted now.
func staying(others []fleet.Other, preempted []types.UID) []types.UID {
	var staying []types.UID
	for _, o := range others {
		if !o.Terminating && !slices.Contains(preempted, o.Pod.UID) {
			staying = append(staying, o.Pod.UID)
		}
	}
	return staying
}
