package eviction

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Signal names an amount that is available on the node, and that may become too small.
type Signal string

// The signals of the kubelet. AllocatableMemoryAvailable is what the cgroup of all pods may still use; it has the
// threshold of MemoryAvailable. The others are of the whole machine or of a file system.
const (
	MemoryAvailable            Signal = "memory.available"
	AllocatableMemoryAvailable Signal = "allocatableMemory.available"
	NodeFsAvailable            Signal = "nodefs.available"
	NodeFsInodesFree           Signal = "nodefs.inodesFree"
	ImageFsAvailable           Signal = "imagefs.available"
	ImageFsInodesFree          Signal = "imagefs.inodesFree"
	ContainerFsAvailable       Signal = "containerfs.available"
	ContainerFsInodesFree      Signal = "containerfs.inodesFree"
	PIDAvailable               Signal = "pid.available"
)

// Names of resources that only eviction counts.
const (
	Inodes corev1.ResourceName = "inodes"
	PIDs   corev1.ResourceName = "pids"
)

// Signals returns all signals, memory first.
func Signals() []Signal {
	return []Signal{MemoryAvailable, AllocatableMemoryAvailable, NodeFsAvailable, NodeFsInodesFree, ImageFsAvailable,
		ImageFsInodesFree, ContainerFsAvailable, ContainerFsInodesFree, PIDAvailable}
}

// Resource returns the resource to free when the signal is short.
func (s Signal) Resource() corev1.ResourceName {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable:
		return corev1.ResourceMemory
	case NodeFsInodesFree, ImageFsInodesFree, ContainerFsInodesFree:
		return Inodes
	case PIDAvailable:
		return PIDs
	default:
		return corev1.ResourceEphemeralStorage
	}
}

// Condition returns the condition of the node while the signal is short.
func (s Signal) Condition() corev1.NodeConditionType {
	switch s.Resource() {
	case corev1.ResourceMemory:
		return corev1.NodeMemoryPressure
	case PIDs:
		return corev1.NodePIDPressure
	default:
		return corev1.NodeDiskPressure
	}
}

// Observation is one look at a signal, in bytes, inodes or processes.
type Observation struct {
	Available, Capacity int64
	// Usage is the whole usage of the cgroup of a memory signal. It includes file pages that count as available.
	Usage int64
	At    time.Time
}

// Observations holds the latest look at each signal that can be observed.
type Observations map[Signal]Observation
