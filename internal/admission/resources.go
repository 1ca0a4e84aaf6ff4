package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// amounts are CPU in thousandths, and all else in units or bytes.
type amounts map[corev1.ResourceName]int64

// requested is what a pod takes of the node: its requests as a whole (KEP-753,
// KEP-2837, overhead included), and a place.
func requested(p *corev1.Pod) amounts {
	a := amountsOf(resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}))
	a[corev1.ResourcePods] = 1
	return a
}

func amountsOf(list corev1.ResourceList) amounts {
	a := make(amounts, len(list)+1)
	for name, q := range list {
		if name == corev1.ResourceCPU {
			a[name] = q.MilliValue()
		} else {
			a[name] = q.Value()
		}
	}
	return a
}

func (a amounts) add(b amounts) {
	for name, n := range b {
		a[name] += n
	}
}

// order has the names in the kubelet's order, in which the first that is
// missing gives the reason.
func (a amounts) order() []corev1.ResourceName {
	first := []corev1.ResourceName{corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(a)), func(n corev1.ResourceName) bool { return slices.Contains(first, n) })
	return append(first, rest...)
}

// Fits says whether the node has what a pod requests beside the others, and
// nothing else: what else admission asks about does not change with a resize.
func Fits(in In) Answer { return checkResources(in) }

// checkResources counts what pods request. A resource that the node does not
// have counts as none: an extended resource that nobody serves is missing, not
// ignored.
func checkResources(in In) Answer {
	want, used, leaving := requested(in.Pod), amounts{}, amounts{}
	others := in.others()
	for _, o := range others {
		r := requested(o.Pod)
		used.add(r)
		if o.Terminating {
			leaving.add(r)
		}
	}
	capacity := amountsOf(in.Node.Allocatable)
	var missing []corev1.ResourceName
	for _, name := range want.order() {
		short := want[name] - (capacity[name] - used[name])
		if want[name] <= 0 || short <= 0 {
			continue
		}
		if short > leaving[name] {
			return reject("OutOf"+string(name), "%s", notEnough(name, want[name], used[name], capacity[name]))
		}
		missing = append(missing, name)
	}
	if len(missing) == 0 {
		return Answer{}
	}
	var holders []PodInfo
	for _, o := range others {
		r := requested(o.Pod)
		if o.Terminating && slices.ContainsFunc(missing, func(n corev1.ResourceName) bool { return r[n] > 0 }) {
			holders = append(holders, o)
		}
	}
	texts := make([]string, len(missing))
	for i, name := range missing {
		texts[i] = notEnough(name, want[name], used[name], capacity[name])
	}
	return notYet("OutOf"+string(missing[0]), holders, "%s", strings.Join(texts, "; "))
}

func notEnough(name corev1.ResourceName, requested, used, capacity int64) string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, requested, used, capacity)
}
