package render

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/base/quantity"
	"github.com/berth-run/berth/internal/model/pod"
)

// Resources returns the resources of a container for the runtime.
func Resources(in Input) *runtimeapi.LinuxContainerResources {
	c, node := in.Container, in.Node
	cpuLimit := limitOf(in, corev1.ResourceCPU)
	request, requested := c.Resources.Requests[corev1.ResourceCPU]
	if !requested {
		request = cpuLimit
	}
	memory := limitOf(in, corev1.ResourceMemory)
	r := &runtimeapi.LinuxContainerResources{
		CpuShares:          int64(cgroupfile.Shares(request.MilliValue())),
		MemoryLimitInBytes: memory.Value(),
		OomScoreAdj:        oomScoreAdj(in),
		HugepageLimits:     hugePageLimits(in),
	}
	setQuota(r, node, cpuLimit)
	if node.Quota != nil && node.Quota.Unthrottled(in.Pod, c) {
		r.CpuQuota = -1
	}
	unified := map[string]string{}
	if node.CgroupV2 && node.GroupOOMKill {
		unified["memory.oom.group"] = "1"
	}
	if node.CgroupV2 && node.MemoryQoS != nil {
		maps.Copy(unified, memoryQoS(in))
	}
	switch {
	case !node.SwapController:
	case node.CgroupV2:
		unified["memory.swap.max"] = strconv.FormatInt(swap(in), 10)
	default:
		// The limit covers memory and swap together: this one allows no swap.
		r.MemorySwapLimitInBytes = r.MemoryLimitInBytes
	}
	if len(unified) > 0 {
		r.Unified = unified
	}
	return r
}

func setQuota(r *runtimeapi.LinuxContainerResources, node Node, limit resource.Quantity) {
	if !node.CFSQuota {
		return
	}
	period := cmp.Or(node.CFSPeriod, cgroupfile.DefaultPeriod)
	r.CpuPeriod = period.Microseconds()
	r.CpuQuota = cgroupfile.Quota(limit.MilliValue(), period)
}

// Resources returns the resources of a container of a pod, as this node gives them to the runtime.
func (node Node) Resources(p *corev1.Pod, c pod.Container) *runtimeapi.LinuxContainerResources {
	return Resources(Input{Pod: p, QOS: pod.QOS(p), Container: c, Node: node})
}

// PodResources returns the resources of a whole pod for the runtime: what its containers may use together, and its
// overhead, which is both request and limit (KEP-688).
func (node Node) PodResources(p *corev1.Pod) (containers, overhead *runtimeapi.LinuxContainerResources) {
	opts := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	return whole(resourcehelper.PodRequests(p, opts), resourcehelper.PodLimits(p, opts), node),
		whole(p.Spec.Overhead, p.Spec.Overhead, node)
}

func whole(requests, limits corev1.ResourceList, node Node) *runtimeapi.LinuxContainerResources {
	request, ok := requests[corev1.ResourceCPU]
	if !ok {
		request = *limits.Cpu()
	}
	r := &runtimeapi.LinuxContainerResources{CpuShares: int64(cgroupfile.Shares(request.MilliValue())),
		MemoryLimitInBytes: limits.Memory().Value()}
	setQuota(r, node, *limits.Cpu())
	return r
}

// memoryPage is the granularity of memory limits in bytes. A kernel with larger pages rounds further.
const memoryPage = 4096

// memoryQoS returns memory.min, memory.low and memory.high as the kubelet sets them (KEP-2570).
func memoryQoS(in Input) map[string]string {
	request, limit := in.Container.Resources.Requests.Memory().Value(), in.Container.Resources.Limits.Memory().Value()
	files := map[string]string{"memory.min": "0", "memory.low": "0"}
	if in.Node.MemoryQoS.Tiered && request != 0 {
		file := "memory.low"
		if in.QOS == corev1.PodQOSGuaranteed {
			file = "memory.min"
		}
		files = map[string]string{file: strconv.FormatInt(request, 10)}
	}
	top := cmp.Or(limit, in.Node.Allocatable.Memory().Value())
	high := int64(float64(request)+float64(top-request)*in.Node.MemoryQoS.ThrottlingFactor) / memoryPage * memoryPage
	if request != limit && high > request {
		files["memory.high"] = strconv.FormatInt(high, 10)
	}
	return files
}

// limitOf returns the container's limit, or the pod's if the container has none (KEP-2837).
func limitOf(in Input, name corev1.ResourceName) resource.Quantity {
	q := in.Container.Resources.Limits[name]
	if q.IsZero() && in.Pod.Spec.Resources != nil {
		return in.Pod.Spec.Resources.Limits[name]
	}
	return q
}

// swap returns how many bytes of the node's swap a container may use on cgroup v2 (KEP-2400): none, or as large a share
// as its memory request is of the node's memory.
func swap(in Input) int64 {
	requests, limits := in.Container.Resources.Requests, in.Container.Resources.Limits
	request, limit := requests.Memory(), limits.Memory()
	if !in.Node.LimitedSwap || in.Node.MemoryCapacity <= 0 || in.QOS != corev1.PodQOSBurstable ||
		pod.Critical(in.Pod, in.Node.StaticCritical) || request.Cmp(*limit) == 0 ||
		request.Value() > in.Node.MemoryCapacity {
		return 0
	}
	return int64(float64(request.Value()) / float64(in.Node.MemoryCapacity) * float64(in.Node.SwapCapacity))
}

const (
	nodeCritical  = "system-node-critical"
	oomGuaranteed = -997
	oomBestEffort = 1000
)

// oomScoreAdj returns the kubelet's value. Under memory pressure, the kernel first kills containers that use more
// memory than they requested. A Burstable container lies always between BestEffort and Guaranteed ones. The result is
// never below what the runtime can set.
func oomScoreAdj(in Input) int64 {
	adj := oomWanted(in)
	if lowest := in.Node.MinOOMScoreAdj; lowest != nil {
		adj = max(adj, *lowest)
	}
	return adj
}

func oomWanted(in Input) int64 {
	switch {
	case in.Pod.Spec.PriorityClassName == nodeCritical, in.QOS == corev1.PodQOSGuaranteed:
		return oomGuaranteed
	case in.QOS == corev1.PodQOSBestEffort, in.Node.MemoryCapacity <= 0:
		return oomBestEffort
	}
	request := in.Container.Resources.Requests.Memory().Value()
	if in.Container.Kind == pod.Sidecar {
		// A sidecar survives at least as long as the smallest app container.
		smallest := in.Pod.Spec.Containers[0].Resources.Requests.Memory().Value()
		for _, c := range in.Pod.Spec.Containers[1:] {
			smallest = min(smallest, c.Resources.Requests.Memory().Value())
		}
		request = max(request, smallest)
	}
	request += unassigned(in.Pod)
	return max(1000+oomGuaranteed, min(1000-1000*request/in.Node.MemoryCapacity, oomBestEffort-1))
}

// unassigned returns each container's share of the memory that the pod requests beyond its containers (KEP-2837).
func unassigned(p *corev1.Pod) int64 {
	if !resourcehelper.IsPodLevelRequestsSet(p) || p.Spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	containers := resourcehelper.AggregateContainerRequests(p, resourcehelper.PodResourcesOptions{})
	rest := p.Spec.Resources.Requests.Memory().Value() - containers.Memory().Value()
	return rest / int64(len(p.Spec.Containers)+len(p.Spec.InitContainers))
}

// hugePageLimits sets a limit for every page size of the machine: the container's, else the pod's, else 0.
func hugePageLimits(in Input) []*runtimeapi.HugepageLimit {
	var list []*runtimeapi.HugepageLimit
	for _, size := range in.Node.HugePages {
		list = append(list, &runtimeapi.HugepageLimit{PageSize: size})
	}
	apply := func(limits corev1.ResourceList) {
		for name, q := range limits {
			size, ok := pageSize(name)
			for _, l := range list {
				if ok && l.PageSize == size {
					l.Limit = uint64(q.Value())
				}
			}
		}
	}
	if in.Pod.Spec.Resources != nil {
		apply(in.Pod.Spec.Resources.Limits)
	}
	apply(in.Container.Resources.Limits)
	return list
}

// pageSize turns hugepages-2Mi into the hugetlb controller's 2MB.
func pageSize(name corev1.ResourceName) (string, bool) {
	text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
	if !ok {
		return "", false
	}
	q, err := quantity.Parse(text)
	return PageSize(q.Value()), err == nil
}

// PageSize spells a size in bytes as the hugetlb controller does.
func PageSize(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB", "PB"}
	for len(units) > 1 && bytes != 0 && bytes%1024 == 0 {
		bytes, units = bytes/1024, units[1:]
	}
	return fmt.Sprintf("%d%s", bytes, units[0])
}
