package link

import (
	"net"
	"net/netip"
	"strings"
)

const (
	// nameLength is the number of characters of a sandbox's ID in the names of its devices. The kernel allows 15.
	nameLength  = 11
	aliasPrefix = "pod of "
)

// Name returns the name of a sandbox's device on the bridge.
func Name(id string) string { return "veth" + id[:min(len(id), nameLength)] }

// alias describes a pod's device: its bridge, its sandbox and its addresses.
func alias(bridge, id string, addresses []netip.Prefix) string {
	parts := []string{aliasPrefix + bridge + ":", id}
	for _, a := range addresses {
		parts = append(parts, a.String())
	}
	return strings.Join(parts, " ")
}

// parse reads the alias of a pod's device. ok is false if the device belongs to no pod of the bridge.
func parse(bridge, text string) (pod Pod, ok bool) {
	rest, ok := strings.CutPrefix(text, aliasPrefix+bridge+": ")
	parts := strings.Fields(rest)
	if !ok || len(parts) < 2 {
		return Pod{}, false
	}
	pod.ID = parts[0]
	for _, part := range parts[1:] {
		a, err := netip.ParsePrefix(part)
		if err != nil {
			return Pod{}, false
		}
		pod.Addresses = append(pod.Addresses, a)
	}
	return pod, true
}

// hardware returns the Ethernet address of a pod. It follows from the IP address, so that what the neighbours of an
// earlier pod with this address remember is still right.
func hardware(addresses []netip.Prefix) net.HardwareAddr {
	bytes := addresses[0].Addr().AsSlice()
	return append(net.HardwareAddr{0x0a, 0x58}, bytes[len(bytes)-4:]...)
}

// gateway returns the address of the bridge in the range of an address.
func gateway(a netip.Prefix) netip.Addr { return a.Masked().Addr().Next() }
