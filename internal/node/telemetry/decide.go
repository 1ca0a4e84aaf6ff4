package telemetry

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// interval is a time that something took.
type interval struct{ from, to time.Time }

// merged is how long at least one of them lasted.
func merged(all []interval) time.Duration {
	all = slices.SortedFunc(slices.Values(all), func(a, b interval) int { return a.from.Compare(b.from) })
	var sum time.Duration
	var end time.Time
	for _, i := range all {
		if i.from.Before(end) {
			i.from = end
		}
		if i.to.After(i.from) {
			sum += i.to.Sub(i.from)
			end = i.to
		}
	}
	return sum
}

// running says that each container of a pod has been started, and runs.
func running(s corev1.PodStatus) bool {
	for _, c := range s.ContainerStatuses {
		if c.State.Running == nil || c.State.Running.StartedAt.IsZero() {
			return false
		}
	}
	return len(s.ContainerStatuses) > 0
}

// ended says that a pod will not start any more.
func ended(s corev1.PodStatus) bool {
	return s.Phase == corev1.PodFailed || s.Phase == corev1.PodSucceeded
}

// inits is how long the pod's init containers ran until the moment it counts as
// started. Sidecars go on beside the others and hold nothing up once they have
// started, so they do not count.
func inits(s corev1.PodStatus) time.Duration {
	var sum time.Duration
	for _, c := range s.InitContainerStatuses {
		if t := c.State.Terminated; t != nil {
			sum += max(0, t.FinishedAt.Sub(t.StartedAt.Time))
		}
	}
	return sum
}

// stateful says that a pod's start is beyond what the SLI of pod startup latency
// promises anything about: it mounts what has to be attached, or fetched.
func stateful(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil && v.Projected == nil
	})
}

// unschedulable says that the scheduler once had no node for a pod: that is in the
// time since its creation, and is no node's doing.
func unschedulable(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
			c.Reason == corev1.PodReasonUnschedulable
	})
}
