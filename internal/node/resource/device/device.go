package device

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/berth-run/berth/internal/node/resource/topology"
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

// Inventory is what all plugins offer, by resource. A resource whose plugin was
// lost a moment ago is in it, with devices that are not healthy; one that is not
// in it is served by nobody.
type Inventory map[corev1.ResourceName][]Device

// Held are the devices that containers of the node hold, by resource.
type Held map[corev1.ResourceName]sets.Set[ID]

// Request is what one container, or a pod as a whole, asks of one resource.
type Request struct {
	Resource corev1.ResourceName
	// Count is at least 1.
	Count int
	// Reusable are those that init containers of the pod hold and that are
	// given on when they have ended. They are in Held too.
	Reusable sets.Set[ID]
}

// Requests are the resources of the inventory that a list asks for, in whole
// devices. Extended resources are not overcommitted: limits are requests.
func (inv Inventory) Requests(limits corev1.ResourceList) map[corev1.ResourceName]int {
	var asked map[corev1.ResourceName]int
	for name, q := range limits {
		if _, known := inv[name]; !known || q.Value() <= 0 {
			continue
		}
		if asked == nil {
			asked = map[corev1.ResourceName]int{}
		}
		asked[name] = int(q.Value())
	}
	return asked
}

// Capacity is the number of devices by resource, those that are not healthy
// included.
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
