package api

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Topology is what the machine is built of and who holds what of it. CPUs are
// lists as in cpuset(7), such as "0-3,8"; sizes are bytes.
type Topology struct {
	metav1.TypeMeta `json:",inline"`
	// CPUs are those online.
	CPUs        string `json:"cpus"`
	OfflineCPUs string `json:"offlineCPUs,omitempty"`
	// ReservedCPUs are never given to a container alone.
	ReservedCPUs string `json:"reservedCPUs,omitempty"`
	// SharedCPUs are what containers without CPUs of their own run on: the reserved
	// ones among them, unless strict-cpu-reservation keeps those free. Without the
	// static CPU policy these are all.
	SharedCPUs string `json:"sharedCPUs"`
	// CPUPolicy is none or static, MemoryPolicy None or Static, TopologyPolicy none,
	// best-effort, restricted or single-numa-node and TopologyScope container or pod,
	// as in KubeletConfiguration.
	CPUPolicy      string `json:"cpuPolicy"`
	MemoryPolicy   string `json:"memoryPolicy"`
	TopologyPolicy string `json:"topologyPolicy"`
	TopologyScope  string `json:"topologyScope"`

	Sockets []CPUSocket `json:"sockets"`
	Nodes   []NUMANode  `json:"nodes"`
	Caches  []Cache     `json:"caches"`
	// LowerCaches are the other caches that hold data, by level and id.
	LowerCaches []Cache        `json:"lowerCaches"`
	Cores       []Core         `json:"cores"`
	Devices     []DeviceHolder `json:"devices"`
	// Holders are by namespace, pod and container.
	Holders []Holder `json:"holders"`
}

// CPUSocket is a physical package.
type CPUSocket struct {
	ID   int    `json:"id"`
	CPUs string `json:"cpus"`
}

// NUMANode is a NUMA node; one without CPUs or without memory is there too.
type NUMANode struct {
	ID        int         `json:"id"`
	CPUs      string      `json:"cpus"`
	Memory    int64       `json:"memory"` // huge pages included
	HugePages []HugePages `json:"hugePages,omitempty"`
	// Reserved is what containers are not given of it (reservedMemory).
	Reserved []ReservedMemory `json:"reserved,omitempty"`
	// Distances are as the firmware tells them: 10 is local.
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

// Distance is how far another node is.
type Distance struct {
	Node     int `json:"node"`
	Distance int `json:"distance"`
}

// Cache is one that holds data. In Topology.Caches are those of the last level: the highest that
// several cores share. There are none where no cache is shared.
type Cache struct {
	// ID is the least of its CPUs. No other cache of its level has it.
	ID    int    `json:"id"`
	Level int    `json:"level"`
	Size  int64  `json:"size,omitempty"`
	CPUs  string `json:"cpus"`
}

// Core is a physical core; CPUs are its threads.
type Core struct {
	// ID is the least of its CPUs.
	ID     int    `json:"id"`
	Socket int    `json:"socket"`
	Node   int    `json:"node"`
	CPUs   string `json:"cpus"`
}

// DeviceHolder is a device that a plugin offers, and who holds it.
type DeviceHolder struct {
	Resource corev1.ResourceName `json:"resource"`
	ID       string              `json:"id"`
	Healthy  bool                `json:"healthy"`
	// Nodes are those it is near to; empty: its plugin does not say.
	Nodes  []int   `json:"nodes,omitempty"`
	Holder *Holder `json:"holder,omitempty"` // without what it holds
}

// Holder is a container, or a pod as a whole, that holds something for itself.
type Holder struct {
	Namespace string    `json:"namespace,omitempty"`
	Pod       string    `json:"pod,omitempty"` // empty for a pod that has ended and not been cleared away yet
	UID       types.UID `json:"uid"`
	// Container is empty for what the pod's containers hold together: what each
	// holds is part of it, the rest is what its other containers share.
	Container string        `json:"container,omitempty"`
	CPUs      string        `json:"cpus,omitempty"`
	Memory    []MemoryBlock `json:"memory,omitempty"`
	Devices   []HeldDevices `json:"devices,omitempty"`
}

// MemoryBlock is memory, or huge pages of one size, of some nodes together.
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
