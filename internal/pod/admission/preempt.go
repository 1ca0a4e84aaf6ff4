package admission

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// victims are the pods to end so that what is missing is there for a critical
// one, chosen as by the kubelet's preemption: none of a better QoS class where a
// lower one will do; in a class those that come nearest to what is missing, so
// that they are few, and of equals the one with the lower priority, then the
// smaller. Nobody goes whose priority is the pod's or higher, nor one who could
// stay. Lowest QoS first; false: all that may go are not enough.
func victims(in In, short []shortage) ([]PodInfo, bool) {
	need := amounts{}
	for _, s := range short {
		need[s.name] = s.missing()
	}
	classes := map[corev1.PodQOSClass][]candidate{}
	for _, o := range in.others() {
		if !o.Terminating && preemptable(in, o.Pod) {
			c := candidate{info: o, requests: requested(o.Pod), priority: pod.Priority(o.Pod)}
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

// preemptable says whether a pod may be ended for the one asked about, which is
// critical.
func preemptable(in In, p *corev1.Pod) bool {
	return !critical(p, in.Config.Standalone) || pod.Priority(p) < pod.Priority(in.Pod)
}

// candidate is a pod that may go.
type candidate struct {
	info     PodInfo
	requests amounts
	priority int32
}

// less orders candidates that do equally well.
func (c candidate) less(o candidate) bool {
	return cmp.Or(
		cmp.Compare(c.priority, o.priority),
		cmp.Compare(c.requests[corev1.ResourceMemory], o.requests[corev1.ResourceMemory]),
		cmp.Compare(c.requests[corev1.ResourceCPU], o.requests[corev1.ResourceCPU]),
		cmp.Compare(pod.FullName(c.info.Pod), pod.FullName(o.info.Pod)),
	) < 0
}

// nearest takes candidates until nothing is needed any more: each time the one
// that leaves the least.
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

// spare lets those stay without whom it is enough too, the most valuable first:
// chosen has them in front.
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

// rank of a candidate's QoS class, the better the higher.
func rank(c candidate) int {
	return slices.Index([]corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed},
		pod.QOS(c.info.Pod))
}

// without is what is still needed when candidates are gone.
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

// distance is how much is left to be found when c is gone: the sum of the squared
// shares of each resource, so that all weigh the same. 0: nothing.
func (a amounts) distance(c candidate) float64 {
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(a)) { // in one order: sums of floats differ by it
		if left := a[name] - c.requests[name]; left > 0 {
			share := float64(left) / float64(a[name])
			sum += share * share
		}
	}
	return sum
}
