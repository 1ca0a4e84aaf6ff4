package placement

import (
	"errors"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/cpulist"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/cpu"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// place lists where a container runs, in the format of cpuset.cpus and cpuset.mems. If a part is empty, the runtime
// chooses it.
type place struct{ cpus, mems string }

// placeOf computes the place of a container. a is its pod's allocation. shared are the CPUs that no pod holds
// exclusively; it is empty if no CPUs are pinned.
//
// If the pod holds CPUs as a whole, its containers without own CPUs share the rest. Admission ensures that there is a
// rest for all containers except ephemeral ones, which are added later. An ephemeral container without a rest runs on
// all CPUs of its pod.
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

// lasting returns the CPUs of the containers that hold them for the whole life of the pod. Init containers do not.
func lasting(p *corev1.Pod, a resource.Allocation) cpuset.CPUSet {
	all := cpuset.New()
	for _, c := range pod.Containers(p) {
		if c.Kind == pod.App || c.Kind == pod.Sidecar {
			all = all.Union(a.Containers[c.Name].CPUs)
		}
	}
	return all
}

// nodesOf lists the NUMA nodes of memory blocks, such as "0,2".
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

// unthrottled reports whether a container runs without a CPU quota. A quota would only throttle a container on its
// exclusive CPUs (the kubelet's feature gate DisableCPUQuotaWithExclusiveCPUs). The CPUs that an init container gets of
// its pod's CPUs are not exclusive: sidecars may share them.
func unthrottled(p *corev1.Pod, c pod.Container, a resource.Allocation) bool {
	return !a.Containers[c.Name].CPUs.IsEmpty() && cpu.Exclusive(p, c.Container) > 0
}

// podUnthrottled reports whether a pod's cgroup has no CPU quota: at least one of its containers must be unthrottled.
// With pod-level resources all app containers and sidecars must be, because the others share the pod's limit. Init
// containers need not be, because the quota would throttle the containers after them.
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

// stuck is a container that could not be moved to other CPUs.
type stuck struct {
	id   string
	cpus string // where it still runs; "" if unknown
	err  error
}

// affecting returns the failures that prevent the start of a container: its own, and the failures of containers that
// may still run on its exclusive CPUs. exclusive is empty if it has none.
func affecting(failed []stuck, id, exclusive string) error {
	mine, err := cpulist.Set(exclusive)
	var kept []stuck
	for _, f := range failed {
		theirs, unknown := cpulist.Set(f.cpus)
		if f.id == id || err == nil && !mine.IsEmpty() &&
			(unknown != nil || theirs.IsEmpty() || !mine.Intersection(theirs).IsEmpty()) {
			kept = append(kept, f)
		}
	}
	return joined(kept)
}

func joined(failed []stuck) error {
	var errs []error
	for _, f := range failed {
		errs = append(errs, f.err)
	}
	return errors.Join(errs...)
}
