package device

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/resource/topology"
)

// ID is a device's name among those of its resource, as its plugin tells it.
type ID = string

// Device is one device that a plugin offers.
type Device struct {
	ID      ID
	Healthy bool
	// Nodes are those it is near to; 0: the plugin does not say.
	Nodes topology.Nodes
}

// Inventory is what all plugins offer, by resource.
type Inventory map[corev1.ResourceName][]Device
