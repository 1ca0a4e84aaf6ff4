package endpoint

import (
	"maps"
	"net/netip"

	"github.com/berth-run/berth/internal/runtime/network/lease"
	"github.com/berth-run/berth/internal/runtime/network/link"
	"github.com/berth-run/berth/internal/runtime/network/nat"
)

// compare compares leases with the devices of pods. stale are the leases without a device. lost are new leases for
// devices without one, with the host ports that the packet filter has for their addresses.
func compare(leases map[string]lease.Lease, devices []link.Pod,
	ports map[netip.Addr][]nat.Port) (stale, lost map[string]lease.Lease) {
	stale, lost = maps.Clone(leases), map[string]lease.Lease{}
	for _, d := range devices {
		delete(stale, d.ID)
		if _, ok := leases[d.ID]; ok {
			continue
		}
		l := lease.Lease{Addresses: d.Addresses, Egress: true} // to remove the device for limits, if there is one
		for _, a := range d.Addresses {
			l.Ports = append(l.Ports, ports[a.Addr()]...)
		}
		lost[d.ID] = l
	}
	return stale, lost
}
