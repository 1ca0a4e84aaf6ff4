package device

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/berth-run/berth/internal/node/resource/topology"
)

// ID identifies a device among all devices of its resource. The plugin assigns it.
type ID = string

// Device is one device of a plugin.
type Device struct {
	ID      ID
	Healthy bool
	// Nodes are the NUMA nodes close to the device. 0: the plugin does not report any.
	Nodes topology.Nodes
}

// Inventory lists the devices of all plugins by resource. A resource whose plugin disconnected recently stays in the
// list with unhealthy devices. A resource without an entry has no plugin.
type Inventory map[corev1.ResourceName][]Device

// Held are the devices that containers on the node hold, by resource.
type Held map[corev1.ResourceName]sets.Set[ID]

// Request is the request of one container, or of a pod as a whole, for one resource.
type Request struct {
	Resource corev1.ResourceName
	// Count is at least 1.
	Count int
	// Reusable are devices of the pod's init containers, which later containers reuse. They are in Held too.
	Reusable sets.Set[ID]
}

// Requests returns the requested number of devices for each resource of the inventory. Extended resources cannot be
// overcommitted, so the limits are the requests.
func (inv Inventory) Requests(limits corev1.ResourceList) map[corev1.ResourceName]int {
	var requests map[corev1.ResourceName]int
	for name, q := range limits {
		if _, served := inv[name]; !served || q.Value() <= 0 {
			continue
		}
		if requests == nil {
			requests = map[corev1.ResourceName]int{}
		}
		requests[name] = int(q.Value())
	}
	return requests
}

// Capacity is the number of devices by resource, including unhealthy ones.
func (inv Inventory) Capacity() corev1.ResourceList {
	return inv.count(func(Device) bool { return true })
}

// Allocatable is the number of healthy devices by resource.
func (inv Inventory) Allocatable() corev1.ResourceList {
	return inv.count(func(d Device) bool { return d.Healthy })
}

func (inv Inventory) count(counts func(Device) bool) corev1.ResourceList {
	list := make(corev1.ResourceList, len(inv))
	for name, devices := range inv {
		n := int64(0)
		for _, d := range devices {
			if counts(d) {
				n++
			}
		}
		list[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return list
}
