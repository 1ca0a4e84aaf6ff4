package translate

import (
	"encoding/json"
	"fmt"
	"maps"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// rest are the limits that the Engine API lacks. A label of the container keeps them until it starts.
type rest struct {
	Unified   map[string]string           `json:"unified,omitempty"`
	Hugepages []*runtimeapi.HugepageLimit `json:"hugepages,omitempty"`
}

// cgroupText returns the text of the label; "" if the Engine API has all limits of a container.
func cgroupText(r *runtimeapi.LinuxContainerResources) (string, error) {
	left := rest{Unified: r.GetUnified()}
	for _, h := range r.GetHugepageLimits() {
		if h.GetLimit() > 0 { // the kubelet lists all sizes
			left.Hugepages = append(left.Hugepages, h)
		}
	}
	if len(left.Unified)+len(left.Hugepages) == 0 {
		return "", nil
	}
	text, err := json.Marshal(left)
	return string(text), err
}

// CgroupOf reads the text of the label.
func CgroupOf(text string) (*runtimeapi.LinuxContainerResources, error) {
	var left rest
	if err := json.Unmarshal([]byte(text), &left); err != nil {
		return nil, fmt.Errorf("read limits in a label of a container: %w", err)
	}
	return &runtimeapi.LinuxContainerResources{Unified: left.Unified, HugepageLimits: left.Hugepages}, nil
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
