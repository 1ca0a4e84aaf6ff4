package podstatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// owned reports whether Berth computes a condition. Berth keeps the other conditions of a pod.
func owned(t corev1.PodConditionType) bool {
	switch t {
	case corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized, corev1.ContainersReady,
		corev1.PodReadyToStartContainers,
		corev1.AllContainersRestarting, corev1.PodResizePending, corev1.PodResizeInProgress, pod.ConditionSetAside:
		return true
	default:
		return false
	}
}

// conditions sets all conditions. phase is the result of the method phase: it may be a final phase that is not shown
// yet.
func (c *computation) conditions(phase corev1.PodPhase) {
	c.foreign()
	for _, extra := range c.Extra {
		c.put(extra)
	}
	c.disruption()
	if !c.Node.Hidden.StartCondition {
		c.owned(corev1.PodReadyToStartContainers, c.hasSandbox(), "", "")
	}
	c.initialized(phase)
	ready, why, message := c.containersReady(phase)
	if gates := c.closedGates(); ready && gates != "" {
		c.owned(corev1.PodReady, false, "ReadinessGatesNotReady", gates)
	} else {
		c.owned(corev1.PodReady, ready, why, message)
	}
	c.owned(corev1.ContainersReady, ready, why, message)
	c.owned(corev1.PodScheduled, true, "", "")
	c.allRestarting(phase)
}

// owned sets a condition, with the pod's generation as its observed generation.
func (c *computation) owned(t corev1.PodConditionType, status bool, why, message string) {
	c.put(condition(t, status, why, message, c.generation()))
}

func condition(t corev1.PodConditionType, status bool, why, message string, generation int64) corev1.PodCondition {
	s := corev1.ConditionFalse
	if status {
		s = corev1.ConditionTrue
	}
	return corev1.PodCondition{Type: t, Status: s, Reason: why, Message: message, ObservedGeneration: generation}
}

// put sets a condition. If it has no transition time, it gets the time of the last change of its status.
func (c *computation) put(now corev1.PodCondition) {
	if now.LastTransitionTime.IsZero() {
		now.LastTransitionTime = stamp(c.Now)
		if was := find(c.old.Conditions, now.Type); was != nil && was.Status == now.Status &&
			!was.LastTransitionTime.IsZero() {
			now.LastTransitionTime = was.LastTransitionTime
		}
	}
	if at := find(c.s.Conditions, now.Type); at != nil {
		*at = now
		return
	}
	c.s.Conditions = append(c.s.Conditions, now)
}

// WithCondition returns the status of a pod whose status cannot be computed: the previous status with one more
// condition.
func WithCondition(previous corev1.PodStatus, add corev1.PodCondition, now time.Time) corev1.PodStatus {
	s := *previous.DeepCopy()
	s.Phase = cmp.Or(s.Phase, corev1.PodPending)
	c := computation{Input: Input{Now: now}, old: previous, s: s}
	c.put(add)
	return c.s
}

func find(all []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	if i := slices.IndexFunc(all, func(c corev1.PodCondition) bool { return c.Type == t }); i >= 0 {
		return &all[i]
	}
	return nil
}

// disruption sets DisruptionTarget if the node has ended the pod, for example by an eviction. The condition appears
// together with the final phase, not before.
func (c *computation) disruption() {
	was, given := find(c.old.Conditions, corev1.DisruptionTarget), find(c.s.Conditions, corev1.DisruptionTarget)
	if was != nil && (given == nil || was.LastTransitionTime.After(given.LastTransitionTime.Time)) {
		c.put(*was)
	}
	if c.Stop == nil || !c.Terminated || !c.Stop.Reason.FailsPod() || c.Stop.Reason == pod.StopDeadline ||
		pod.Ended(c.old.Phase) {
		return
	}
	c.owned(corev1.DisruptionTarget, true, corev1.PodReasonTerminationByKubelet, c.Stop.Message)
}

// hasSandbox reports whether containers can be started: the newest sandbox is the only ready one, has the right network
// mode, and has an address.
func (c *computation) hasSandbox() bool {
	if c.Observed == nil || len(c.Observed.Sandboxes) == 0 {
		return false
	}
	ready := 0
	for _, s := range c.Observed.Sandboxes {
		if s.Ready {
			ready++
		}
	}
	s := c.Observed.Sandboxes[0]
	return ready == 1 && s.Ready && s.HostNetwork == pod.HostNetwork(c.Pod.Pod) && (s.HostNetwork || len(s.IPs) > 0)
}

// initialized sets the condition Initialized. Once true it stays true, whatever happens to init containers later.
func (c *computation) initialized(phase corev1.PodPhase) {
	var open []string
	for i, k := range c.specs(pod.Init, pod.Sidecar) {
		s := &c.s.InitContainerStatuses[i]
		if k.Kind == pod.Init && !s.Ready || k.Kind == pod.Sidecar && !isTrue(s.Started) {
			open = append(open, k.Name)
		}
	}
	was := find(c.old.Conditions, corev1.PodInitialized)
	switch {
	case phase == corev1.PodSucceeded:
		c.owned(corev1.PodInitialized, true, podCompleted, "")
	case len(open) > 0 && !c.appStarted() && (was == nil || was.Status != corev1.ConditionTrue):
		c.owned(corev1.PodInitialized, false, "ContainersNotInitialized",
			fmt.Sprintf("containers with incomplete status: %s", open))
	default:
		c.owned(corev1.PodInitialized, true, "", "")
	}
}

func (c *computation) appStarted() bool {
	return slices.ContainsFunc(c.s.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil || s.State.Terminated != nil
	})
}

func (c *computation) containersReady(phase corev1.PodPhase) (ready bool, why, message string) {
	switch phase {
	case corev1.PodSucceeded:
		return false, podCompleted, ""
	case corev1.PodFailed:
		return false, podFailed, ""
	default:
	}
	var unready []string
	for i, k := range c.specs(pod.Init, pod.Sidecar) {
		if k.Kind == pod.Sidecar && !c.s.InitContainerStatuses[i].Ready {
			unready = append(unready, k.Name)
		}
	}
	isReady := map[string]bool{}
	for i := range c.s.ContainerStatuses {
		isReady[c.s.ContainerStatuses[i].Name] = c.s.ContainerStatuses[i].Ready
	}
	for i := range c.Pod.Spec.Containers {
		if name := c.Pod.Spec.Containers[i].Name; !isReady[name] {
			unready = append(unready, name)
		}
	}
	if len(unready) > 0 {
		return false, "ContainersNotReady", fmt.Sprintf("containers with unready status: %s", unready)
	}
	return true, "", ""
}

// closedGates describes the readiness gates that keep the pod from being ready.
func (c *computation) closedGates() string {
	var closed []string
	for _, gate := range c.Pod.Spec.ReadinessGates {
		switch now := find(c.s.Conditions, gate.ConditionType); {
		case now == nil:
			closed = append(closed,
				fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case now.Status != corev1.ConditionTrue:
			closed = append(closed,
				fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType,
					now.Status))
		}
	}
	return strings.Join(closed, ", ")
}

// allRestarting sets AllContainersRestarting. Only pods with a rule for restarting all containers have it (KEP-5532).
func (c *computation) allRestarting(phase corev1.PodPhase) {
	hasRule := slices.ContainsFunc(pod.Containers(c.Pod.Pod), func(k pod.Container) bool {
		return k.Kind != pod.Ephemeral &&
			slices.ContainsFunc(k.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
				return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
			})
	})
	why, message := "", ""
	switch {
	case !hasRule:
		return
	case phase == corev1.PodSucceeded:
		why = podCompleted
	case phase == corev1.PodFailed:
		why = podFailed
	case c.Plan.RestartingAll:
		why, message = "RestartAllContainersStarted", "container exited with restart policy rule"
	}
	c.put(condition(corev1.AllContainersRestarting, message != "", why, message, 0))
}
