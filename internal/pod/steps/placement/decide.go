package placement

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/cpu"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// place is where a container runs, as cpuset.cpus and cpuset.mems list it. An
// empty part is left to the runtime.
type place struct{ cpus, mems string }

// placeOf decides it for a container of a pod that holds a. shared are the CPUs
// that nobody has for himself, empty while no CPUs are given away.
//
// In a pod that holds CPUs as a whole, the containers without their own share
// what the others leave. Admission sees to it that this is something for all but
// an ephemeral container, which comes later: where nothing is left it runs on all
// CPUs of its pod.
func placeOf(p *corev1.Pod, name string, a resource.Allocation, shared cpuset.CPUSet) place {
	own := a.Containers[name]
	at := place{cpus: shared.String(), mems: nodesOf(a.Pod.Memory)}
	switch {
	case !own.CPUs.IsEmpty():
		at.cpus = own.CPUs.String()
	case !a.Pod.CPUs.IsEmpty():
		rest := a.Pod.CPUs.Difference(lasting(p, a))
		if rest.IsEmpty() {
			rest = a.Pod.CPUs
		}
		at.cpus = rest.String()
	}
	if mems := nodesOf(own.Memory); mems != "" {
		at.mems = mems
	}
	return at
}

// lasting are the CPUs of those containers that keep them for the pod's life. An
// init container leaves its own behind.
func lasting(p *corev1.Pod, a resource.Allocation) cpuset.CPUSet {
	all := cpuset.New()
	for _, c := range pod.Containers(p) {
		if c.Kind == pod.App || c.Kind == pod.Sidecar {
			all = all.Union(a.Containers[c.Name].CPUs)
		}
	}
	return all
}

// nodesOf lists the NUMA nodes of blocks, such as "0,2".
func nodesOf(blocks []memory.Block) string {
	var nodes topology.Nodes
	for _, b := range blocks {
		nodes |= b.Nodes
	}
	ids := make([]string, 0, nodes.Len())
	for _, id := range nodes.IDs() {
		ids = append(ids, strconv.Itoa(id))
	}
	return strings.Join(ids, ",")
}

// unthrottled says whether a container runs without a CPU quota: CPUs of its own
// are bound enough, and a quota would only stop them (kubelet's feature gate
// DisableCPUQuotaWithExclusiveCPUs). What an init container has of its pod's CPUs
// it may share with sidecars: that is not its own.
func unthrottled(p *corev1.Pod, c pod.Container, a resource.Allocation) bool {
	return !a.Containers[c.Name].CPUs.IsEmpty() && cpu.Exclusive(p, c.Container) > 0
}

// podUnthrottled is the same for a pod as a whole: one of its containers is. With
// pod-level resources all that stay have to be, as the others share the pod's
// limit. Init containers do not count there: the quota would stop those after them.
func podUnthrottled(p *corev1.Pod, a resource.Allocation) bool {
	some, all := false, true
	for _, c := range pod.Containers(p) {
		own := unthrottled(p, c, a)
		some = some || own
		if c.Kind == pod.App || c.Kind == pod.Sidecar {
			all = all && own
		}
	}
	return some && (all || !cpu.PodLevel(p))
}
