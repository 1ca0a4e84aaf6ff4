package shutdown

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Group is the time that pods get from a priority on up to that of the next group
// (shutdownGracePeriodByPodPriority, config.ShutdownGroup).
type Group struct {
	Priority int32
	Grace    time.Duration
}

// Total is the time that all groups take one after the other at most.
func Total(groups []Group) (sum time.Duration) {
	for _, g := range groups {
		sum += g.Grace
	}
	return sum
}

// Ending is a pod and how long its containers get.
type Ending struct {
	Pod   *corev1.Pod
	Grace time.Duration
}

// Batch is a group with the pods in it, never none.
type Batch struct {
	Group
	Pods []Ending
}

// Next is the group that ends now: of the pods that are left those of group i, and
// those that have come too late for the groups before it. None: there are no such.
func Next(groups []Group, i int, left []*corev1.Pod) (b Batch, found bool) {
	b.Group = groups[i]
	for _, batch := range Decide(groups, left) {
		if batch.Priority <= b.Priority {
			b.Pods = append(b.Pods, batch.Pods...)
		}
	}
	return b, len(b.Pods) > 0
}

// Decide puts pods into groups, which ascend by priority, in the order in which
// they end. A pod belongs to
// the group with the highest priority that is not above its own, or to the lowest
// one; it gets its own grace if that is shorter.
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
