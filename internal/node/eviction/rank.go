package eviction

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Candidate is a running pod that may be evicted, with its use of the resource that is short.
type Candidate struct {
	Pod *corev1.Pod
	// Priority is the pod's priority, 0 without one.
	Priority int32
	// Critical pods are never evicted.
	Critical bool
	// Known says that Usage was measured. Pods of unknown use are evicted first.
	Known bool
	// Usage is the use of the pod in bytes, inodes or processes. All of it is free after the pod's end.
	Usage int64
	// Request is the pod's request of the resource. There are none for inodes and processes.
	Request int64
	// Storage is the pod's request of ephemeral storage.
	Storage int64
	// EndsBy is when the grace period of a pod that ends already is over. It is zero for other pods.
	EndsBy time.Time
}

// Rank sorts the pods that may be evicted for a resource: the first one goes first. It leaves out critical pods.
//
// The order is the kubelet's: pods of unknown use, pods that use more than they requested, lower priority, more use
// above the request. For processes only priority and use count. For inodes the kubelet subtracts the request of
// ephemeral storage, so that is done here too. Where the kubelet has no order, the pod that was created last goes
// first.
func Rank(resource corev1.ResourceName, all []Candidate) []Candidate {
	ranked := slices.DeleteFunc(slices.Clone(all), func(c Candidate) bool { return c.Critical })
	slices.SortStableFunc(ranked, func(a, b Candidate) int {
		if resource == PIDs {
			return cmp.Or(cmp.Compare(a.Priority, b.Priority), first(!a.Known, !b.Known),
				cmp.Compare(b.Usage, a.Usage), younger(a.Pod, b.Pod))
		}
		return cmp.Or(first(!a.Known, !b.Known), first(a.exceeds(), b.exceeds()), cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(b.above(resource), a.above(resource)), younger(a.Pod, b.Pod))
	})
	return ranked
}

// exceeds reports whether the pod uses more than it requested.
func (c Candidate) exceeds() bool { return c.Usage > c.Request }

// above returns the use above the request that the kubelet subtracts.
func (c Candidate) above(resource corev1.ResourceName) int64 {
	if resource == Inodes {
		return c.Usage - c.Storage
	}
	return c.Usage - c.Request
}

// first orders true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

func younger(a, b *corev1.Pod) int {
	return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name), strings.Compare(string(a.UID), string(b.UID)))
}

// overdue is how long a pod may outlive its grace period before a decision stops counting on its end: the runtime does
// not answer, or the kernel cannot end a process.
const overdue = 10 * time.Second

// Choose returns the pods that have to end for a crossing, beside those that end already. A soft threshold waits for
// all of these. A hard one waits only for pods that end within HardGrace: the others may be chosen, which shortens
// their grace period.
func Choose(c Crossing, all []Candidate, now time.Time) []Candidate {
	var may []Candidate
	var freeing int64
	for _, pod := range all {
		switch {
		case pod.EndsBy.IsZero():
			may = append(may, pod)
		case now.After(pod.EndsBy.Add(overdue)):
		case !c.Threshold.Hard() || !pod.EndsBy.After(now.Add(HardGrace)):
			freeing += pod.Usage
		default:
			may = append(may, pod)
		}
	}
	return Victims(Rank(c.Threshold.Signal.Resource(), may), c.Shortfall, freeing)
}

// HardGrace is the longest time between the stop signal and the kill of a pod that ends for a hard threshold.
const HardGrace = time.Second

// Grace returns the time between the stop signal and the kill of a victim. When memory or process IDs run out, the
// kernel itself chooses the process that suffers. So for these signals a hard threshold leaves no time at all. A soft
// threshold leaves the pod's own grace period, at most limit (evictionMaxPodGracePeriod).
func Grace(t Threshold, p *corev1.Pod, limit time.Duration) time.Duration {
	switch {
	case !t.Hard():
		if own := p.Spec.TerminationGracePeriodSeconds; own != nil {
			limit = min(limit, time.Duration(*own)*time.Second)
		}
		return limit
	case t.Signal.Condition() == corev1.NodeDiskPressure:
		return HardGrace
	default:
		return 0
	}
}

// Victims returns the shortest front of a ranking whose pods together free at least the shortfall. freeing is the
// amount that ending pods will still free. A pod that uses nothing frees nothing and is left out. After a pod of
// unknown use no other pod is chosen: the next look shows how much it has freed. The sum may be less than the
// shortfall when the ranking ends.
func Victims(ranked []Candidate, shortfall, freeing int64) []Candidate {
	var victims []Candidate
	for _, c := range ranked {
		if freeing >= shortfall {
			break
		}
		if c.Known && c.Usage <= 0 {
			continue
		}
		victims = append(victims, c)
		if !c.Known {
			break
		}
		freeing += c.Usage
	}
	return victims
}
