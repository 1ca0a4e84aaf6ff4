package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/podstatus"
	"github.com/berth-run/berth/internal/pod/steps/probe"
	"github.com/berth-run/berth/internal/pod/steps/resize"
	"github.com/berth-run/berth/internal/pod/worker"
)

// Source adds what the parts of a node know of a pod to the input of its status.
type Source interface {
	Add(fleet.Member, *podstatus.Input)
}

// Parts are the parts of a node that a status shows. It implements Source.
type Parts struct {
	Runtime interface {
		// Name is the runtime's name in container ids, such as containerd.
		Name() string
		// RecursiveReadOnly says whether the handler that runs a pod can mount read-only recursively (KEP-3857).
		RecursiveReadOnly(*corev1.Pod) bool
	}
	Observer interface {
		Observed(types.UID) *pod.Observed
	}
	Containers interface {
		Waiting(uid types.UID, container string) (why, message string, ok bool)
		Starting(uid types.UID, container string) bool
	}
	Probes interface {
		Ready(types.UID) map[string]probe.Ready
	}
	Resizes interface {
		Conditions(types.UID) []corev1.PodCondition
		Actuated(types.UID) resize.Sizes
	}
	Devices interface {
		Status(uid types.UID, container string) []corev1.ResourceStatus
		Waiting(uid types.UID, container string) (message string, ok bool)
	}
	// Claims are the devices that a container has by ResourceClaims.
	Claims interface {
		Devices(p *corev1.Pod, container string) (health []corev1.ResourceStatus, waits string)
	}
	Addresses interface {
		// HostIPs are the addresses of the node that pods see.
		HostIPs() []string
	}
	Kills interface {
		// Cause says whose memory ran out when the kernel killed a process of a container, by the container's ID.
		Cause(id string) string
	}
	Hidden podstatus.Hidden
}

// Add implements Source.
func (x Parts) Add(m fleet.Member, in *podstatus.Input) {
	p, uid := m.Pod.Pod, m.Pod.UID
	in.Observed = x.Observer.Observed(uid)
	in.Waiting = func(container string) (string, string, bool) { return x.waiting(m, container) }
	in.Starting = func(container string) bool { return x.Containers.Starting(uid, container) }
	in.Probes = map[string]podstatus.Probes{}
	for id, r := range x.Probes.Ready(uid) {
		in.Probes[id] = podstatus.Probes(r)
	}
	in.Extra = append(in.Extra, x.Resizes.Conditions(uid)...)
	in.Actual = map[string]podstatus.Actual{}
	for id, r := range x.Resizes.Actuated(uid) {
		if id == resize.Whole {
			in.Whole = &r
			continue
		}
		in.Actual[id] = podstatus.Actual{Resources: &r}
	}
	in.Devices = func(container string) []corev1.ResourceStatus {
		claimed, _ := x.Claims.Devices(p, container)
		return append(x.Devices.Status(uid, container), claimed...)
	}
	in.Killed = map[string]string{}
	for _, c := range in.Observed.ContainersOf() {
		if cause := x.Kills.Cause(c.ID); cause != "" {
			in.Killed[c.ID] = cause
		}
	}
	in.QOS = pod.QOS(p)
	in.Node = podstatus.Node{Runtime: x.Runtime.Name(), HostIPs: x.Addresses.HostIPs(),
		RecursiveReadOnly: x.Runtime.RecursiveReadOnly(p), Hidden: x.Hidden}
	in.Now = time.Now()
}

// waiting says why a container has not started: its own start has failed, its pod waits for objects, or one of them
// waits for devices.
func (x Parts) waiting(m fleet.Member, container string) (why, message string, ok bool) {
	p, uid := m.Pod.Pod, m.Pod.UID
	if why, message, ok := x.Containers.Waiting(uid, container); ok {
		return why, message, ok
	}
	if why, message, ok := Awaited(p, m.State); ok {
		return why, message, ok
	}
	message, ok = x.Devices.Waiting(uid, container)
	if !ok {
		_, message = x.Claims.Devices(p, container)
	}
	return reason.ContainerCreating, message, message != ""
}

// place adds what the fleet knows of a pod to the input of its status.
func place(m fleet.Member) podstatus.Input {
	in := podstatus.Input{Pod: m.Pod}
	if m.Working || m.Gone {
		in.Stop, in.Plan = m.State.Stop, &m.State.Plan
		in.Terminated = m.State.Stage >= worker.Cleaning
	} else if v := m.Verdict; v.Given() && !v.Admit {
		in.Refused = &podstatus.Refusal{Reason: v.Reason, Message: v.Message, Final: v.Reject, Blocked: v.Blocked}
	}
	// A deletion makes another generation. The status shows it when the pod has ended: an update for the number alone
	// would cost a request for each pod that ends.
	if m.Desired != nil && (in.Stop == nil || in.Terminated) {
		in.Generation = m.Desired.Generation
	}
	return in
}
