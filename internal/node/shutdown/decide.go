package shutdown

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Group is the time for pods with at least this priority, up to the priority of the next group
// (shutdownGracePeriodByPodPriority, config.ShutdownGroup).
type Group struct {
	Priority int32
	Grace    time.Duration
}

// Total is the maximum time for all groups, which end one after another.
func Total(groups []Group) (sum time.Duration) {
	for _, g := range groups {
		sum += g.Grace
	}
	return sum
}

// Ending is a pod and the grace period for its containers.
type Ending struct {
	Pod   *corev1.Pod
	Grace time.Duration
}

// Batch is a group with its pods. It has at least one.
type Batch struct {
	Group
	Pods []Ending
}

// Next returns group i with its pods, plus pods of earlier groups that appeared too late for those. found is false if
// there are none.
func Next(groups []Group, i int, left []*corev1.Pod) (b Batch, found bool) {
	b.Group = groups[i]
	for _, batch := range Decide(groups, left) {
		if batch.Priority <= b.Priority {
			b.Pods = append(b.Pods, batch.Pods...)
		}
	}
	return b, len(b.Pods) > 0
}

// Decide assigns pods to groups, which are sorted by priority, and returns the groups with pods in the order of their
// end. A pod belongs to the group with the highest priority that is not above its own, or else to the lowest group. Its
// grace period is the shorter of its own and the group's.
func Decide(groups []Group, pods []*corev1.Pod) []Batch {
	all := make([]Batch, len(groups))
	for i, g := range groups {
		all[i].Group = g
	}
	for _, p := range pods {
		priority := int32(0)
		if p.Spec.Priority != nil {
			priority = *p.Spec.Priority
		}
		at := 0
		for i, g := range groups {
			if g.Priority <= priority {
				at = i
			}
		}
		grace := groups[at].Grace
		if own := p.Spec.TerminationGracePeriodSeconds; own != nil {
			grace = min(grace, time.Duration(*own)*time.Second)
		}
		all[at].Pods = append(all[at].Pods, Ending{p, grace})
	}
	return slices.DeleteFunc(all, func(b Batch) bool { return len(b.Pods) == 0 })
}
