package podstatus

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
)

// Compute returns the status of one pod. The result shares memory with the input, so the caller must change neither
// afterwards.
func Compute(in Input) corev1.PodStatus {
	c := &computation{Input: in, old: in.Previous, runs: map[string][]*pod.ContainerStatus{}}
	seen := in.Observed.ContainersOf()
	for i := range seen {
		c.runs[seen[i].Name] = append(c.runs[seen[i].Name], &seen[i])
	}
	if wasRejected(in.Previous) && (in.Refused == nil || !in.Refused.Final) && !c.ended() {
		c.old = corev1.PodStatus{} // a later agent, or a change of the pod, has brought it through admission again
	}
	if c.old.Phase == "" {
		c.old = in.Pod.Status
	}
	if c.Plan == nil {
		c.Plan = &plan.Plan{}
	}
	c.begin()
	if r := in.Refused; r != nil && r.Final {
		c.s.Phase, c.s.Reason, c.s.Message = corev1.PodFailed, r.Reason, rejected+r.Message
		return c.s
	}
	c.addresses()
	c.resources()
	c.s.InitContainerStatuses = c.containers(c.old.InitContainerStatuses, pod.Init, pod.Sidecar)
	c.s.ContainerStatuses = byName(c.containers(c.old.ContainerStatuses, pod.App))
	c.s.EphemeralContainerStatuses = byName(c.containers(c.old.EphemeralContainerStatuses, pod.Ephemeral))
	if in.Refused != nil {
		in.Refused.explain(c.s.InitContainerStatuses)
		in.Refused.explain(c.s.ContainerStatuses)
	}
	if in.Terminated {
		c.closeLost()
	}
	coming := c.phase()
	c.conditions(coming)
	return c.s
}

// explain sets the message of waiting containers whose pod is not admitted. Containers of a pod that the node cannot
// run have the reason Blocked. The others keep their reason, which users and tools know from pods that start.
func (r Refusal) explain(list []corev1.ContainerStatus) {
	for i := range list {
		w := list[i].State.Waiting
		if w == nil {
			continue
		}
		why := w.Reason
		if r.Blocked {
			why = blocked
		}
		list[i].State.Waiting = &corev1.ContainerStateWaiting{Reason: why, Message: r.Message}
	}
}

type computation struct {
	Input
	old  corev1.PodStatus
	s    corev1.PodStatus
	runs map[string][]*pod.ContainerStatus // the instances of each container by name, newest first
}

// generation returns the generation that the status observes.
func (c *computation) generation() int64 { return cmp.Or(c.Generation, c.Pod.Generation) }

// begin sets the fields that do not depend on the runtime.
func (c *computation) begin() {
	given := &c.Pod.Status
	c.s = corev1.PodStatus{
		ObservedGeneration:          c.generation(),
		QOSClass:                    cmp.Or(c.QOS, given.QOSClass),
		StartTime:                   c.old.StartTime,
		NominatedNodeName:           given.NominatedNodeName,
		ResourceClaimStatuses:       given.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: given.ExtendedResourceClaimStatus,

		NodeAllocatableResourceClaimStatuses: given.NodeAllocatableResourceClaimStatuses,
	}
	if c.s.StartTime.IsZero() {
		c.s.StartTime = new(stamp(c.firstSeen()))
	}
}

// firstSeen returns when the pod came to this node. The oldest sandbox in the runtime may be older than this agent.
func (c *computation) firstSeen() time.Time {
	first := c.Now
	if c.Observed != nil {
		for _, s := range c.Observed.Sandboxes {
			if !s.CreatedAt.IsZero() && s.CreatedAt.Before(first) {
				first = s.CreatedAt
			}
		}
	}
	return first
}

// addresses sets the addresses of the pod and of the host. A pod whose sandbox has ended keeps its last addresses. A
// pod on the host network has the host's addresses and keeps them.
func (c *computation) addresses() {
	for _, ip := range c.Node.HostIPs {
		c.s.HostIPs = append(c.s.HostIPs, corev1.HostIP{IP: ip})
	}
	if len(c.s.HostIPs) > 0 {
		c.s.HostIP = c.s.HostIPs[0].IP
	}
	was, ips := c.old.PodIPs, PodIPs(c.Pod.Pod, c.Observed, c.Node.HostIPs)
	switch _, ready := c.Observed.Sandbox(); {
	case pod.HostNetwork(c.Pod.Pod) && len(was) > 0:
		c.s.PodIPs = slices.Clone(was)
		if len(was) == 1 && len(ips) == 2 && pod.Family(was[0].IP) != pod.Family(ips[1]) {
			c.s.PodIPs = append(c.s.PodIPs, corev1.PodIP{IP: ips[1]})
		}
	case pod.HostNetwork(c.Pod.Pod) || ready:
		for _, ip := range ips {
			c.s.PodIPs = append(c.s.PodIPs, corev1.PodIP{IP: ip})
		}
	default:
		c.s.PodIPs = was
	}
	if len(c.s.PodIPs) > 0 {
		c.s.PodIP = c.s.PodIPs[0].IP
	}
}

// HostIPs returns the addresses of a node that its pods see: the first address, and the first address of the other
// family. Internal addresses come before external ones.
func HostIPs(all []corev1.NodeAddress) (ips []string) {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range all {
			ip, err := netip.ParseAddr(a.Address)
			if a.Type != kind || err != nil {
				continue
			}
			if len(ips) == 0 || len(ips) == 1 && netip.MustParseAddr(ips[0]).Is4() != ip.Is4() {
				ips = append(ips, ip.String())
			}
		}
	}
	return ips
}

// PodIPs returns the current addresses of a pod (pod.IPs). It returns none without a ready sandbox, unless the pod is
// on the host's network.
func PodIPs(p *corev1.Pod, o *pod.Observed, hostIPs []string) []string {
	box, _ := o.Sandbox()
	return pod.IPs(p, box.IPs, hostIPs)
}

// resources sets the resources of the whole pod (KEP-5419): those that its cgroup has, and those allocated to it.
func (c *computation) resources() {
	actual, effective := *c.Pod.Pod, corev1.ResourceRequirements{}
	if c.Pod.Spec.Resources != nil {
		effective.Claims = c.Pod.Spec.Resources.Claims
	}
	if c.Whole != nil {
		actual.Spec.Resources = c.Whole
	}
	effective.Requests = resourcehelper.PodRequests(&actual, resourcehelper.PodResourcesOptions{})
	effective.Limits = resourcehelper.PodLimits(&actual, resourcehelper.PodResourcesOptions{})
	c.s.Resources = &effective
	c.s.AllocatedResources = resourcehelper.PodRequests(c.Pod.Pod, resourcehelper.PodResourcesOptions{})
}

// phase sets phase, reason and message. It returns the phase that follows from the pod's state. A final phase is
// returned as soon as it is certain, but shown only when nothing runs any more.
func (c *computation) phase() corev1.PodPhase {
	if pod.Ended(c.old.Phase) {
		c.s.Phase, c.s.Reason, c.s.Message = c.old.Phase, c.old.Reason, c.old.Message
		return c.s.Phase
	}
	if given := &c.Pod.Status; c.ended() {
		c.s.Phase, c.s.Reason, c.s.Message = given.Phase, given.Reason, given.Message
		return c.s.Phase
	}
	coming, over := c.livePhase(), c.Terminated
	switch {
	case c.Stop != nil && c.Stop.Reason.FailsPod():
		if c.Terminated || c.Stop.Reason == pod.StopDeadline {
			coming = judged(c.Stop.Reason != pod.StopShutdown || !c.succeeded())
		}
	case c.Plan.Done:
		coming, over = judged(c.Plan.Failed), over || !c.alive()
	case c.Terminated:
		coming = judged(!c.succeeded())
	}
	switch {
	case pod.Ended(coming) && !over:
		c.s.Phase = c.livePhase()
	case pod.Ended(coming) && c.Stop != nil && c.Stop.Reason.FailsPod():
		c.s.Phase, c.s.Reason, c.s.Message = coming, string(c.Stop.Reason), c.Stop.Message
	case !pod.Ended(coming) && c.Refused != nil:
		c.s.Phase, c.s.Reason, c.s.Message = coming, c.Refused.Reason, c.Refused.Message
	default:
		c.s.Phase = coming
	}
	return coming
}

// ended reports whether the API server has a final phase for the pod, no matter who has set it. Such a pod never
// continues, under any agent.
func (c *computation) ended() bool {
	return c.Pod.Source == pod.SourceAPI && pod.Ended(c.Pod.Status.Phase)
}

func judged(failed bool) corev1.PodPhase {
	if failed {
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

// blocked is the reason of waiting containers whose node lacks something that the pod asks for. Kubelets with
// soft admission showed it too.
const blocked = reason.Blocked

// rejected begins the message of a rejected pod, as under the kubelet.
const rejected = "Pod was rejected: "

// WasRefused reports whether a status shows this final refusal.
func WasRefused(s corev1.PodStatus, r Refusal) bool {
	return r.Final && s.Phase == corev1.PodFailed && s.Reason == r.Reason && s.Message == rejected+r.Message
}

// wasRejected reports whether a status is of a rejected pod, and not of a pod that ran and failed.
func wasRejected(s corev1.PodStatus) bool {
	return s.Phase == corev1.PodFailed && strings.HasPrefix(s.Message, rejected)
}

// GoesOn reports whether a pod continues from a status after an agent restart. The status of a rejection does not
// count, since the pod may be admitted now. Nor does the status of a shutdown of the node, which did not end the pod
// for good.
func GoesOn(s corev1.PodStatus) bool { return !wasRejected(s) && s.Reason != string(pod.StopShutdown) }

// Ready reports whether the condition Ready of a status is true.
func Ready(s corev1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// livePhase returns Running once the init containers have finished and every container has run, even if all of them
// wait for a restart. Otherwise it returns Pending.
func (c *computation) livePhase() corev1.PodPhase {
	initialized := c.appInSandbox()
	for i, k := range c.specs(pod.Init, pod.Sidecar) {
		s := &c.s.InitContainerStatuses[i]
		fresh := s.State.Terminated == nil && s.LastTerminationState.Terminated == nil
		switch {
		case k.Kind == pod.Init && (fresh || s.State.Running != nil):
			return corev1.PodPending
		case k.Kind == pod.Sidecar && s.State.Waiting != nil && fresh:
			return corev1.PodPending
		case k.Kind == pod.Sidecar && s.State.Running != nil && !isTrue(s.Started) && !initialized:
			return corev1.PodPending
		}
	}
	for i := range c.s.ContainerStatuses {
		s := &c.s.ContainerStatuses[i]
		if s.State.Waiting != nil && s.LastTerminationState.Terminated == nil {
			return corev1.PodPending
		}
	}
	return corev1.PodRunning
}

// succeeded reports whether every app container has exited with code 0.
func (c *computation) succeeded() bool {
	return !slices.ContainsFunc(c.s.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Terminated == nil || s.State.Terminated.ExitCode != 0
	})
}

// alive reports whether a container of the pod runs or is in an unknown state.
func (c *computation) alive() bool {
	return slices.ContainsFunc(c.Observed.ContainersOf(), func(s pod.ContainerStatus) bool {
		return s.State == pod.StateRunning || s.State == pod.StateUnknown
	})
}

// appInSandbox reports whether an app container was created in the current sandbox. If so, the pod has been
// initialized.
func (c *computation) appInSandbox() bool {
	box, ok := c.Observed.Sandbox()
	for i := range c.Pod.Spec.Containers {
		for _, s := range c.runs[c.Pod.Spec.Containers[i].Name] {
			if ok && s.SandboxID == box.ID {
				return true
			}
		}
	}
	return false
}

// stopping reports whether the pod is ending, so that no container starts any more.
func (c *computation) stopping() bool { return c.Stop != nil || c.Pod.DeletionTimestamp != nil }

func (c *computation) specs(kinds ...pod.Kind) []pod.Container {
	return slices.DeleteFunc(pod.Containers(c.Pod.Pod), func(k pod.Container) bool {
		return !slices.Contains(kinds, k.Kind)
	})
}

func byName(all []corev1.ContainerStatus) []corev1.ContainerStatus {
	slices.SortFunc(all, func(a, b corev1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// stamp returns a time as the API stores it, in whole seconds.
func stamp(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t.UTC().Truncate(time.Second))
}

func isTrue(b *bool) bool { return b != nil && *b }
