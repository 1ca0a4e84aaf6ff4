package memory

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/resource/topology"
)

// Block is an amount of memory, or of huge pages of one size, of some nodes
// together.
type Block struct {
	Nodes    topology.Nodes
	Resource corev1.ResourceName
	Size     int64 // bytes
}
