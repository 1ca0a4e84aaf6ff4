package translate

import (
	"encoding/json"
	"fmt"
	"maps"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// extra are the limits that the Engine API lacks. A label of the container stores them until the container starts.
type extra struct {
	Unified   map[string]string           `json:"unified,omitempty"`
	Hugepages []*runtimeapi.HugepageLimit `json:"hugepages,omitempty"`
}

// cgroupText returns the text of the label; "" if the Engine API has all limits of a container.
func cgroupText(r *runtimeapi.LinuxContainerResources) (string, error) {
	limits := extra{Unified: r.GetUnified()}
	for _, h := range r.GetHugepageLimits() {
		if h.GetLimit() > 0 { // the kubelet lists all sizes
			limits.Hugepages = append(limits.Hugepages, h)
		}
	}
	if len(limits.Unified)+len(limits.Hugepages) == 0 {
		return "", nil
	}
	text, err := json.Marshal(limits)
	return string(text), err
}

// CgroupOf reads the text of the label.
func CgroupOf(text string) (*runtimeapi.LinuxContainerResources, error) {
	var limits extra
	if err := json.Unmarshal([]byte(text), &limits); err != nil {
		return nil, fmt.Errorf("read limits in a label of a container: %w", err)
	}
	return &runtimeapi.LinuxContainerResources{Unified: limits.Unified, HugepageLimits: limits.Hugepages}, nil
}

// CgroupFiles returns the values of the cgroup's files for limits that the Engine API lacks. unified says that the
// machine has cgroup v2.
func CgroupFiles(r *runtimeapi.LinuxContainerResources, unified bool) map[string]string {
	values := map[string]string{}
	if unified {
		maps.Copy(values, r.GetUnified())
	}
	file := "limit_in_bytes"
	if unified {
		file = "max"
	}
	for _, h := range r.GetHugepageLimits() {
		if h.GetLimit() > 0 {
			values[fmt.Sprintf("hugetlb.%s.%s", h.GetPageSize(), file)] = fmt.Sprint(h.GetLimit())
		}
	}
	return values
}
