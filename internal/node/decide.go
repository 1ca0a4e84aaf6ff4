package node

import (
	"errors"
	"maps"
	"runtime"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-run/berth/internal/base/cpulist"
	"github.com/berth-run/berth/internal/node/eviction"
)

// Reserved is the part of the machine that pods may not use, as in KubeletConfiguration.
type Reserved struct {
	// Kube and System are kubeReserved and systemReserved.
	Kube, System corev1.ResourceList
	// Thresholds are the thresholds of eviction. Only the hard ones of memory.available and nodefs.available matter
	// here: pods may not request resources below them.
	Thresholds []eviction.Threshold
}

// Capacity holds the machine's resources.
type Capacity struct {
	CPUs         int
	MemoryBytes  int64
	StorageBytes int64 // 0: the node has no ephemeral-storage
	// HugePages is the number of pages by page size in bytes.
	HugePages map[int64]int64
	Pods      int64
}

// Resources converts the capacity to a resource list of the API.
func (c Capacity) Resources() corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(c.CPUs)*1000, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(c.MemoryBytes, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(c.Pods, resource.DecimalSI),
	}
	if c.StorageBytes > 0 {
		list[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(c.StorageBytes, resource.BinarySI)
	}
	for size, count := range c.HugePages {
		list[HugePages(size)] = *resource.NewQuantity(size*count, resource.BinarySI)
	}
	return list
}

// HugePages returns the resource name of huge pages of a size in bytes, e.g. hugepages-2Mi.
func HugePages(size int64) corev1.ResourceName {
	return corev1.ResourceName(corev1.ResourceHugePagesPrefix + resource.NewQuantity(size, resource.BinarySI).String())
}

func maxPods(limit, perCore int32, cpus int) int64 {
	if perCore <= 0 {
		return int64(limit)
	}
	return min(int64(limit), int64(perCore)*int64(cpus))
}

// afterReserved returns allocatable: capacity - kubeReserved - systemReserved - hard eviction thresholds, without
// memory in huge pages, and never below 0. usable is the capacity without the reservations only.
func afterReserved(capacity corev1.ResourceList, r Reserved) (allocatable, usable corev1.ResourceList) {
	usable = without(without(capacity, r.Kube), r.System)
	allocatable = without(usable, evictionReserve(capacity, r.Thresholds))
	huge := corev1.ResourceList{}
	for name, q := range capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			sum := huge[corev1.ResourceMemory]
			sum.Add(q)
			huge[corev1.ResourceMemory] = sum
		}
	}
	return without(allocatable, huge), usable
}

// without subtracts the amounts in reserved from those in list. No result is below 0.
func without(list, reserved corev1.ResourceList) corev1.ResourceList {
	rest := make(corev1.ResourceList, len(list))
	for name, q := range list {
		q = q.DeepCopy()
		if t, ok := reserved[name]; ok {
			q.Sub(t)
		}
		if q.Sign() < 0 {
			q = *resource.NewQuantity(0, q.Format)
		}
		rest[name] = q
	}
	return rest
}

// evictionReserve returns the memory and storage below the hard thresholds.
func evictionReserve(capacity corev1.ResourceList, all []eviction.Threshold) corev1.ResourceList {
	reserve := corev1.ResourceList{}
	for _, t := range all {
		name, counts := map[eviction.Signal]corev1.ResourceName{
			eviction.MemoryAvailable: corev1.ResourceMemory, eviction.NodeFsAvailable: corev1.ResourceEphemeralStorage,
		}[t.Signal]
		if total := capacity[name]; counts && t.Hard() {
			reserve[name] = *resource.NewQuantity(t.Value.Of(total.Value()), resource.BinarySI)
		}
	}
	return reserve
}

// labels returns the labels that every node has and the configured ones.
func labels(name string, configured map[string]string) map[string]string {
	all := map[string]string{
		corev1.LabelHostname:             name,
		corev1.LabelOSStable:             runtime.GOOS,
		corev1.LabelArchStable:           runtime.GOARCH,
		"beta." + corev1.LabelOSStable:   runtime.GOOS,
		"beta." + corev1.LabelArchStable: runtime.GOARCH,
	}
	maps.Copy(all, configured)
	return all
}

type memory struct{ total, swap int64 }

// parseMemory parses /proc/meminfo, proc_meminfo(5). The results are in bytes.
func parseMemory(text string) (memory, error) {
	kib := map[string]int64{}
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(line, ":")
		if f := strings.Fields(rest); len(f) == 2 && f[1] == "kB" {
			if n, err := strconv.ParseInt(f[0], 10, 64); err == nil {
				kib[name] = n
			}
		}
	}
	total, ok := kib["MemTotal"]
	if !ok {
		return memory{}, errors.New("no line MemTotal")
	}
	return memory{total: total << 10, swap: kib["SwapTotal"] << 10}, nil
}

// countCPUs counts the CPUs in a list as in cpuset(7). An empty list is an error.
func countCPUs(list string) (int, error) {
	ids, err := cpulist.Parse(list)
	if err == nil && len(ids) == 0 {
		err = errors.New("the list is empty")
	}
	return len(ids), err
}

// osImage returns PRETTY_NAME of os-release(5).
func osImage(text string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(value, `"'`)
		}
	}
	return "Linux"
}
