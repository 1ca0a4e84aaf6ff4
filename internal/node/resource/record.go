package resource

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/cpulist"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// record is an Allocation on disk, format version 1.
type record struct {
	Containers map[string]share `json:"containers,omitempty"`
	Pod        *share           `json:"pod,omitempty"`
}

// share is a Holding on disk. CPUs are a list as in cpuset(7).
type share struct {
	CPUs    string                              `json:"cpus,omitempty"`
	Memory  []block                             `json:"memory,omitempty"`
	Devices map[corev1.ResourceName][]device.ID `json:"devices,omitempty"`
}

type block struct {
	Nodes    []int               `json:"nodes"`
	Resource corev1.ResourceName `json:"resource"`
	Size     int64               `json:"size"`
}

func recordOf(a Allocation) record {
	r := record{Containers: make(map[string]share, len(a.Containers))}
	for name, g := range a.Containers {
		r.Containers[name] = shareOf(g)
	}
	if !a.Pod.IsEmpty() {
		r.Pod = new(shareOf(a.Pod))
	}
	return r
}

func shareOf(g Holding) share {
	s := share{CPUs: g.CPUs.String(), Devices: g.Devices}
	for _, b := range g.Memory {
		s.Memory = append(s.Memory, block{Nodes: b.Nodes.IDs(), Resource: b.Resource, Size: b.Size})
	}
	return s
}

func (r record) allocation() (Allocation, error) {
	a := Allocation{}
	for name, s := range r.Containers {
		g, err := s.given()
		if err != nil {
			return Allocation{}, fmt.Errorf("read the allocation of container %q: %w", name, err)
		}
		if g.IsEmpty() {
			continue
		}
		if a.Containers == nil {
			a.Containers = map[string]Holding{}
		}
		a.Containers[name] = g
	}
	if r.Pod != nil {
		var err error
		if a.Pod, err = r.Pod.given(); err != nil {
			return Allocation{}, fmt.Errorf("read the allocation of the pod as a whole: %w", err)
		}
	}
	return a, nil
}

func (s share) given() (Holding, error) {
	g := Holding{Devices: s.Devices}
	var err error
	if g.CPUs, err = cpulist.Set(s.CPUs); err != nil {
		return Holding{}, err
	}
	for _, b := range s.Memory {
		for _, id := range b.Nodes {
			if id < 0 || id > 63 {
				return Holding{}, fmt.Errorf("NUMA node id %d is not in the range 0 to 63", id)
			}
		}
		if b.Size < 0 {
			return Holding{}, fmt.Errorf("%d bytes of %s are not a valid amount", b.Size, b.Resource)
		}
		g.Memory = append(g.Memory, memory.Block{Nodes: topology.Of(b.Nodes...), Resource: b.Resource, Size: b.Size})
	}
	return g, nil
}
