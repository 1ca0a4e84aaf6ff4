package api

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Topology describes the machine's CPUs, memory and devices, and which pods hold them exclusively. CPU
// lists have the format of cpuset(7), such as "0-3,8". Sizes are in bytes.
type Topology struct {
	metav1.TypeMeta `json:",inline"`
	// CPUs are the online CPUs.
	CPUs        string `json:"cpus"`
	OfflineCPUs string `json:"offlineCPUs,omitempty"`
	// ReservedCPUs are never assigned exclusively to a container.
	ReservedCPUs string `json:"reservedCPUs,omitempty"`
	// SharedCPUs are the CPUs of containers that have none exclusively. The reserved CPUs are among them,
	// unless strict-cpu-reservation keeps those free. Without the static CPU policy these are all online
	// CPUs.
	SharedCPUs string `json:"sharedCPUs"`
	// CPUPolicy is none or static, MemoryPolicy is None or Static. TopologyPolicy is none, best-effort,
	// restricted or single-numa-node, and TopologyScope is container or pod. The values are KubeletConfiguration's.
	CPUPolicy      string `json:"cpuPolicy"`
	MemoryPolicy   string `json:"memoryPolicy"`
	TopologyPolicy string `json:"topologyPolicy"`
	TopologyScope  string `json:"topologyScope"`

	Sockets []CPUSocket `json:"sockets"`
	Nodes   []NUMANode  `json:"nodes"`
	Caches  []Cache     `json:"caches"`
	// LowerCaches are the data caches below the last level, by level and id.
	LowerCaches []Cache        `json:"lowerCaches"`
	Cores       []Core         `json:"cores"`
	Devices     []DeviceHolder `json:"devices"`
	// Holders are sorted by namespace, pod and container.
	Holders []Holder `json:"holders"`
}

// CPUSocket is a physical package.
type CPUSocket struct {
	ID   int    `json:"id"`
	CPUs string `json:"cpus"`
}

// NUMANode is a NUMA node. Nodes without CPUs or without memory are listed too.
type NUMANode struct {
	ID        int         `json:"id"`
	CPUs      string      `json:"cpus"`
	Memory    int64       `json:"memory"` // huge pages included
	HugePages []HugePages `json:"hugePages,omitempty"`
	// Reserved is the memory that no container gets (reservedMemory).
	Reserved []ReservedMemory `json:"reserved,omitempty"`
	// Distances are reported by the firmware. 10 is local.
	Distances []Distance `json:"distances,omitempty"`
}

// HugePages are the pre-allocated pages of one size.
type HugePages struct {
	Size  int64 `json:"size"`
	Count int64 `json:"count"`
}

// ReservedMemory is an amount of memory, or of huge pages of one size.
type ReservedMemory struct {
	Resource corev1.ResourceName `json:"resource"`
	Size     int64               `json:"size"`
}

// Distance is the distance from one NUMA node to another.
type Distance struct {
	Node     int `json:"node"`
	Distance int `json:"distance"`
}

// Cache is a data cache. Topology.Caches lists the last level, which is the highest level that several
// cores share. It is empty if no cache is shared.
type Cache struct {
	// ID is the lowest of its CPUs. It is unique among the caches of a level.
	ID    int    `json:"id"`
	Level int    `json:"level"`
	Size  int64  `json:"size,omitempty"`
	CPUs  string `json:"cpus"`
}

// Core is a physical core; CPUs are its threads.
type Core struct {
	// ID is the lowest of its CPUs.
	ID     int    `json:"id"`
	Socket int    `json:"socket"`
	Node   int    `json:"node"`
	CPUs   string `json:"cpus"`
}

// DeviceHolder is a device of a device plugin, with its current holder.
type DeviceHolder struct {
	Resource corev1.ResourceName `json:"resource"`
	ID       string              `json:"id"`
	Healthy  bool                `json:"healthy"`
	// Nodes are the NUMA nodes that the device is near. It is empty if the plugin does not report any.
	Nodes  []int   `json:"nodes,omitempty"`
	Holder *Holder `json:"holder,omitempty"` // CPUs, Memory and Devices are left out
}

// Holder is a container, or a pod as a whole, that holds resources exclusively.
type Holder struct {
	Namespace string    `json:"namespace,omitempty"`
	Pod       string    `json:"pod,omitempty"` // empty for an ended pod whose resources are not released yet
	UID       types.UID `json:"uid"`
	// Container is empty for the resources that the pod's containers hold together. Each container's own
	// resources are a part of them, and the other containers share the rest.
	Container string        `json:"container,omitempty"`
	CPUs      string        `json:"cpus,omitempty"`
	Memory    []MemoryBlock `json:"memory,omitempty"`
	Devices   []HeldDevices `json:"devices,omitempty"`
}

// MemoryBlock is memory, or huge pages of one size, from a group of NUMA nodes.
type MemoryBlock struct {
	Nodes    []int               `json:"nodes"`
	Resource corev1.ResourceName `json:"resource"`
	Size     int64               `json:"size"`
}

// HeldDevices are the devices of one resource.
type HeldDevices struct {
	Resource corev1.ResourceName `json:"resource"`
	IDs      []string            `json:"ids"`
}
