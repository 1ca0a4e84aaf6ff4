package agent

import (
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/pod/admission"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/steps/allocation"
)

// newAllocations makes the part that knows what pods hold for themselves.
func newAllocations(a *Agent) (*allocation.Allocations, error) {
	n, err := allocation.ReadNode(os.DirFS("/"), a.config.Node, a.facts, a.log)
	if err != nil {
		return nil, err
	}
	s := allocation.New(allocation.Options{
		Node: n, Dir: filepath.Join(a.config.RootDir, "resources"), Root: a.config.RootDir, Events: a.events,
		Log:     a.log,
		Devices: func() device.Inventory { return a.steps.devices.Inventory() },
		Synced:  []<-chan struct{}{a.sources.Synced(), a.pleg.Synced()}, Desired: a.sources.Desired,
		Observed: a.pleg.Table(), Pinned: func(p *corev1.Pod, id string) (string, string, bool) {
			return a.steps.cgroups.Containers().Pinned(p, id)
		},
		Known: a.known, Working: func(uid types.UID) bool { return taken(a.fleet, uid) },
	})
	tellDamage(a.log, s.Load())
	return s, nil
}

// allotted adds to admission's input what a rule asks of the node's resources.
func allotted(s *allocation.Allocations, in admission.In) admission.In {
	p := in.Pod
	in.Devices = s.Node().Devices
	in.Given, _ = s.Get(p.UID)
	in.Allot = func(beside []types.UID) (resource.Allocation, error) { return s.Allot(p, beside) }
	return in
}

// book books what a verdict gives, and frees what it takes. What cannot be
// written down is not given: the pod waits.
func (a allocator) book(p *pod.Pod, others []fleet.Other, v fleet.Verdict) fleet.Verdict {
	if !v.Reserve {
		a.steps.allocations.Drop(p.UID)
	}
	if v.Reject {
		a.steps.allocations.Refused(v.Reason, v.Message)
	}
	switch {
	case v.Reserve:
		a.steps.allocations.Keep(p.Pod, a.staying(others))
	case v.Admit && !v.Ended:
		beside := make([]types.UID, len(others))
		for i, o := range others {
			beside[i] = o.Pod.UID
		}
		if err := a.steps.allocations.Book(p.Pod, beside); err != nil {
			a.log.Error("book what a pod is given", "pod", pod.FullName(p.Pod), "err", err)
			return fleet.Verdict{Reason: admission.UnexpectedAdmissionError, Message: reason.Message(err),
				Again: time.Now().Add(5 * time.Second)}
		}
	case v.Ended, v.Reject && !a.pleg.Observed(p.UID).Running():
		a.steps.allocations.Free(p.UID)
	}
	return v
}

// staying are those of these pods that have not been told to end by now.
func (a allocator) staying(others []fleet.Other) []types.UID {
	var staying []types.UID
	for _, o := range others {
		if m, _ := a.fleet.Member(o.Pod.UID); !m.Working || m.State.Stop == nil {
			staying = append(staying, o.Pod.UID)
		}
	}
	return staying
}
