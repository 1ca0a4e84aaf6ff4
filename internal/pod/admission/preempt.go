package admission

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// victims chooses the pods to end so that a critical pod gets the resources that it lacks, as the kubelet's preemption
// does. It takes no pod of a better QoS class where a lower class is enough. Within a class it takes the pods that come
// nearest to the shortage, so that they are few; of equals, the one with the lower priority, then the smaller one. It
// spares every pod that need not end because the other victims suffice. A critical pod is taken only if its priority is
// lower. The result begins with the lowest QoS class; false: all candidates together are not enough.
func victims(in In, short []shortage) ([]PodInfo, bool) {
	need := amounts{}
	for _, s := range short {
		need[s.name] = s.missing()
	}
	classes := map[corev1.PodQOSClass][]candidate{}
	for o := range in.others() {
		if !o.Terminating && preemptable(in, o.Pod) {
			c := candidate{info: o, requests: o.requested(), priority: pod.Priority(o.Pod)}
			classes[pod.QOS(o.Pod)] = append(classes[pod.QOS(o.Pod)], c)
		}
	}
	bestEffort, burstable, guaranteed := classes[corev1.PodQOSBestEffort], classes[corev1.PodQOSBurstable],
		classes[corev1.PodQOSGuaranteed]
	var chosen []candidate
	for _, step := range []struct{ from, spared []candidate }{
		{guaranteed, slices.Concat(bestEffort, burstable)},
		{burstable, bestEffort},
		{bestEffort, nil},
	} {
		more, ok := nearest(step.from, need.without(slices.Concat(step.spared, chosen)))
		if !ok {
			return nil, false
		}
		chosen = append(chosen, more...)
	}
	chosen = spare(chosen, need)
	slices.Reverse(chosen)
	infos := make([]PodInfo, len(chosen))
	for i, c := range chosen {
		infos[i] = c.info
	}
	return infos, true
}

// preemptable reports whether a pod may be ended to make room for in.Pod, which is critical.
func preemptable(in In, p *corev1.Pod) bool {
	return !in.critical(p) || pod.Priority(p) < pod.Priority(in.Pod)
}

// candidate is a pod that may be preempted.
type candidate struct {
	info     PodInfo
	requests amounts
	priority int32
}

// less orders candidates of equal distance.
func (c candidate) less(o candidate) bool {
	return cmp.Or(
		cmp.Compare(c.priority, o.priority),
		cmp.Compare(c.requests[corev1.ResourceMemory], o.requests[corev1.ResourceMemory]),
		cmp.Compare(c.requests[corev1.ResourceCPU], o.requests[corev1.ResourceCPU]),
		cmp.Compare(pod.FullName(c.info.Pod), pod.FullName(o.info.Pod)),
	) < 0
}

// nearest takes candidates until need is met: each time the candidate that leaves the least to be met.
func nearest(from []candidate, need amounts) ([]candidate, bool) {
	rest, chosen := slices.Clone(from), []candidate(nil)
	for len(need) > 0 {
		best := -1
		for i, c := range rest {
			if best < 0 || need.distance(c) < need.distance(rest[best]) ||
				need.distance(c) == need.distance(rest[best]) && c.less(rest[best]) {
				best = i
			}
		}
		if best < 0 {
			return nil, false
		}
		need = need.without(rest[best : best+1])
		chosen = append(chosen, rest[best])
		rest = slices.Delete(rest, best, best+1)
	}
	return chosen, true
}

// spare removes the candidates without which the others meet need, the most valuable first. It returns the rest in the
// order of their value.
func spare(chosen []candidate, need amounts) []candidate {
	slices.SortStableFunc(chosen, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(rank(b), rank(a)), cmp.Compare(b.priority, a.priority))
	})
	for i := 0; i < len(chosen); {
		without := slices.Delete(slices.Clone(chosen), i, i+1)
		if len(need.without(without)) == 0 {
			chosen = without
		} else {
			i++
		}
	}
	return chosen
}

// rank is higher for a better QoS class.
func rank(c candidate) int {
	return slices.Index([]corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed},
		pod.QOS(c.info.Pod))
}

// without returns the amounts that are still needed when candidates are gone.
func (a amounts) without(gone []candidate) amounts {
	rest := maps.Clone(a)
	for name := range a {
		for _, c := range gone {
			rest[name] -= c.requests[name]
		}
		if rest[name] <= 0 {
			delete(rest, name)
		}
	}
	return rest
}

// distance measures the amounts that are still needed when c is gone: the sum over all resources of the squared share,
// so that each resource weighs the same. It is 0 if c is enough.
func (a amounts) distance(c candidate) float64 {
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(a)) { // sorted: the sum of floats depends on the order
		if left := a[name] - c.requests[name]; left > 0 {
			share := float64(left) / float64(a[name])
			sum += share * share
		}
	}
	return sum
}
