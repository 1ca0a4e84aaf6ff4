package cgroup

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/quantity"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/cgroup/hierarchy"
)

// Options apply to all pods of the node.
type Options struct {
	// CFSQuota enforces CPU limits by a quota. Without it they have no effect.
	CFSQuota bool
	// CFSPeriod is the quota's period, 1 ms to 1 s. Default 100 ms.
	CFSPeriod time.Duration
	// PidsLimit is the largest number of processes and threads of a pod. 0 or less means no limit.
	PidsLimit int64
	// MemoryQoS protects the memory that pods request (KEP-2570), on cgroup v2 only.
	MemoryQoS *config.MemoryQoS
	// Quota says which pods have no quota. nil means that every pod with a limit has one.
	Quota Quota
}

// Quota says which pods have no quota.
type Quota interface {
	// PodUnthrottled reports whether a pod has exclusive CPUs and therefore no quota.
	PodUnthrottled(*corev1.Pod) bool
}

// ForPod decides the limits of a pod's cgroup.
//
// Shares follow the requests, quota and memory the limits of the whole pod: KEP-753 for init containers and sidecars,
// KEP-2837 for pod-level resources, overhead included. A Burstable pod gets a limit only if each of its containers has
// one, or the pod itself.
func ForPod(p *corev1.Pod, o Options) hierarchy.Limits {
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	limits := resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{})
	l := hierarchy.Limits{Shares: cgroupfile.MinShares, Pids: max(0, o.PidsLimit), HugePages: map[int64]int64{}}
	for name, q := range requests {
		if size, ok := hugePageSize(name); ok {
			l.HugePages[size] = q.Value()
		}
	}
	class := pod.QOS(p)
	if class == corev1.PodQOSBestEffort {
		return l
	}
	l.Shares = cgroupfile.Shares(requests.Cpu().MilliValue())
	if memory := requests.Memory().Value(); o.MemoryQoS != nil && o.MemoryQoS.Tiered && memory > 0 {
		l.Protected = &hierarchy.Protection{Low: memory}
		if class == corev1.PodQOSGuaranteed {
			l.Protected = &hierarchy.Protection{Min: memory}
		}
	}
	if class == corev1.PodQOSGuaranteed || bounded(p, corev1.ResourceCPU) {
		period := cmp.Or(o.CFSPeriod, cgroupfile.DefaultPeriod)
		l.Period = uint64(period.Microseconds())
		l.Quota = -1
		if o.CFSQuota && (o.Quota == nil || !o.Quota.PodUnthrottled(p)) {
			l.Quota = cgroupfile.Quota(limits.Cpu().MilliValue(), period)
		}
	}
	if class == corev1.PodQOSGuaranteed || bounded(p, corev1.ResourceMemory) {
		l.Memory = limits.Memory().Value()
	}
	return l
}

// explicit replaces a missing quota or memory limit by "no limit", so that an earlier limit of the cgroup is removed.
func explicit(l hierarchy.Limits) hierarchy.Limits {
	if l.Quota == 0 {
		l.Quota = -1
	}
	if l.Memory == 0 {
		l.Memory = -1
	}
	return l
}

// grown returns the limits of want, but none below the current limits in have.
func grown(have, want hierarchy.Limits) hierarchy.Limits {
	l := explicit(want)
	if have.Quota < 0 || l.Quota >= 0 && float64(have.Quota)*float64(l.Period) > float64(l.Quota)*float64(have.Period) {
		l.Quota, l.Period = have.Quota, have.Period
	}
	if have.Memory < 0 || l.Memory >= 0 && have.Memory > l.Memory {
		l.Memory = have.Memory
	}
	return l
}

// bounded reports whether the pod has a limit for a resource: its own, or one on each of its containers.
func bounded(p *corev1.Pod, name corev1.ResourceName) bool {
	if p.Spec.Resources != nil {
		if q := p.Spec.Resources.Limits[name]; !q.IsZero() {
			return true
		}
	}
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if q := list[i].Resources.Limits[name]; q.IsZero() {
				return false
			}
		}
	}
	return true
}

// hugePageSize returns the page size in bytes of a resource such as hugepages-2Mi.
func hugePageSize(name corev1.ResourceName) (int64, bool) {
	prefix := corev1.ResourceHugePagesPrefix
	if len(name) <= len(prefix) || string(name[:len(prefix)]) != prefix {
		return 0, false
	}
	q, err := quantity.Parse(string(name[len(prefix):]))
	return q.Value(), err == nil
}

// demand is the sum of the requests of pods.
type demand struct {
	shares                uint64 // of Burstable pods
	guaranteed, burstable int64  // memory in bytes
}

// demandOf adds up the requests. Pods that have ended request nothing.
func demandOf(pods []*corev1.Pod) demand {
	var d demand
	var milli int64
	for _, p := range pods {
		if pod.Ended(p.Status.Phase) {
			continue
		}
		requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
		switch pod.QOS(p) {
		case corev1.PodQOSBurstable:
			milli += requests.Cpu().MilliValue()
			d.burstable += requests.Memory().Value()
		case corev1.PodQOSGuaranteed:
			d.guaranteed += requests.Memory().Value()
		case corev1.PodQOSBestEffort:
		}
	}
	d.shares = cgroupfile.Shares(milli)
	return d
}

// levelLimits returns the limits of the cgroup that contains the pods of a class.
//
// With MemoryQoS a level protects the requests of its pods, because the kernel caps a cgroup's protection at its
// parents' protection. QOSReserved is a percentage of the memory that higher classes request. Lower classes get only
// the node's memory minus that part.
func levelLimits(class corev1.PodQOSClass, d demand, c Config) hierarchy.Limits {
	var l hierarchy.Limits
	usable := c.Usable.Memory().Value()
	rest := usable - d.guaranteed*c.QOSReserved/100
	switch class {
	case corev1.PodQOSBurstable:
		l.Shares = d.shares
	case corev1.PodQOSBestEffort:
		l.Shares = cgroupfile.MinShares
		rest -= d.burstable * c.QOSReserved / 100
	case corev1.PodQOSGuaranteed:
		l = nodeLimits(c.Usable)
	}
	if c.QOSReserved > 0 && usable > 0 && class != corev1.PodQOSGuaranteed {
		l.Memory = rest
	}
	if q := c.Options.MemoryQoS; q != nil && class != corev1.PodQOSBestEffort {
		l.Protected = &hierarchy.Protection{}
		switch {
		case !q.Tiered:
		case class == corev1.PodQOSGuaranteed:
			l.Protected.Min = d.guaranteed + d.burstable
		default:
			l.Protected.Low = d.burstable
		}
	}
	return l
}

// nodeLimits returns limits for a cgroup that may use these amounts of the node's resources.
func nodeLimits(usable corev1.ResourceList) hierarchy.Limits {
	var l hierarchy.Limits
	if q, ok := usable[corev1.ResourceCPU]; ok {
		l.Shares = cgroupfile.Shares(q.MilliValue())
	}
	if q, ok := usable[corev1.ResourceMemory]; ok {
		l.Memory = q.Value()
	}
	if q, ok := usable[PIDs]; ok {
		l.Pids = q.Value()
	}
	for name, q := range usable {
		if size, ok := hugePageSize(name); ok {
			if l.HugePages == nil {
				l.HugePages = map[int64]int64{}
			}
			l.HugePages[size] = q.Value()
		}
	}
	return l
}

// PIDs is the resource that kubeReserved and systemReserved call pid.
const PIDs corev1.ResourceName = "pid"

// reservedLimits returns the limits of a cgroup with reserved amounts.
func reservedLimits(r Reserved, o Options) hierarchy.Limits {
	l := nodeLimits(r.Amounts)
	if r.Compressible {
		return hierarchy.Limits{Shares: l.Shares}
	}
	if o.MemoryQoS != nil && l.Memory > 0 {
		l.Protected = &hierarchy.Protection{Min: l.Memory}
	}
	return l
}
