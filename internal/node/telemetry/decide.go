package telemetry

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// interval is a span of time.
type interval struct{ from, to time.Time }

// merged returns for how long at least one of the intervals lasted.
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

// running reports whether every container of a pod has started and is running.
func running(s corev1.PodStatus) bool {
	for _, c := range s.ContainerStatuses {
		if c.State.Running == nil || c.State.Running.StartedAt.IsZero() {
			return false
		}
	}
	return len(s.ContainerStatuses) > 0
}

// inits returns how long the pod's init containers ran before the pod counted as started. Sidecars do not count,
// because they delay nothing once they have started.
func inits(s corev1.PodStatus) time.Duration {
	var sum time.Duration
	for _, c := range s.InitContainerStatuses {
		if t := c.State.Terminated; t != nil {
			sum += max(0, t.FinishedAt.Sub(t.StartedAt.Time))
		}
	}
	return sum
}

// stateful reports whether the pod startup latency SLI excludes a pod because it mounts volumes that must be attached
// or fetched.
func stateful(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil && v.Projected == nil
	})
}

// unschedulable reports whether the scheduler once found no node for a pod. That wait is part of the time since its
// creation, and the node did not cause it.
func unschedulable(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
			c.Reason == corev1.PodReasonUnschedulable
	})
}
