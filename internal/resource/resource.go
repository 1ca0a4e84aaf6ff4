package resource

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/resource/device"
	"github.com/berth-run/berth/internal/resource/memory"
)

// Given is what one container, or a pod as a whole, holds for itself.
type Given struct {
	// CPUs nobody else runs on. Empty: it runs on those that are shared.
	CPUs cpuset.CPUSet
	// Memory is by NUMA nodes. Empty: from anywhere.
	Memory []memory.Block
	// Devices are ids by resource.
	Devices map[corev1.ResourceName][]device.ID
}

// Allocation is what a pod holds.
type Allocation struct {
	// Containers is by name, init containers and sidecars included; one that
	// holds nothing is left out.
	Containers map[string]Given
	// Pod is held by the containers together (pod-level resources).
	Pod Given
}
