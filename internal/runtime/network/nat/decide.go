package nat

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables"
)

// The numbers of protocols in the IP header.
const (
	TCP  = 6
	UDP  = 17
	SCTP = 132
)

// Pod is a sandbox with its addresses and host ports.
type Pod struct {
	ID        string
	Addresses []netip.Addr
	Ports     []Port
}

// Port is a host port.
type Port struct {
	// Protocol is the number of the protocol in the IP header.
	Protocol uint8
	// HostIP is the only address of the host with the open port. It is invalid for all addresses, and unspecified
	// (0.0.0.0 or ::) for all of one family.
	HostIP netip.Addr `json:",omitzero"`
	// HostPort leads to Port of the pod.
	HostPort, Port uint16
}

// Conflicts reports whether two pods cannot have the ports at the same time. A port with a HostIP takes precedence over
// the same port of all addresses.
func (p Port) Conflicts(q Port) bool {
	if p.Protocol != q.Protocol || p.HostPort != q.HostPort {
		return false
	}
	a, b := p.HostIP.Unmap(), q.HostIP.Unmap()
	allA, allB := !a.IsValid() || a.IsUnspecified(), !b.IsValid() || b.IsUnspecified()
	if allA && allB {
		return !a.IsValid() || !b.IsValid() || a == b
	}
	return a == b
}

// width is the size of a register. Each part of a key begins in a new one.
const width = 4

// join concatenates the parts of a key or a value as the kernel's registers hold them.
func join(parts ...[]byte) []byte {
	var all []byte
	for _, part := range parts {
		all = append(all, part...)
		for len(all)%width != 0 {
			all = append(all, 0)
		}
	}
	return all
}

func number(port uint16) []byte { return binary.BigEndian.AppendUint16(nil, port) }

// elements returns the elements of a pod, by the name of their set or map.
func elements(p Pod) map[string][]nftables.SetElement {
	all := map[string][]nftables.SetElement{}
	add := func(set string, key, value []byte) {
		same := func(e nftables.SetElement) bool { return bytes.Equal(e.Key, key) }
		if !slices.ContainsFunc(all[set], same) { // two addresses of the host may have the same port
			all[set] = append(all[set], nftables.SetElement{Key: key, Val: value, Comment: p.ID})
		}
	}
	for _, a := range p.Addresses {
		f := familyOf(a)
		add(f.set("pods"), a.AsSlice(), nil)
		for _, port := range p.Ports {
			host := port.HostIP.Unmap()
			if host.IsValid() && host.Is4() != a.Is4() {
				continue
			}
			protocol, from := []byte{port.Protocol}, number(port.HostPort)
			to := join(a.AsSlice(), number(port.Port))
			if host.IsValid() && !host.IsUnspecified() {
				add(f.set("addressed"), join(host.AsSlice(), protocol, from), to)
			} else {
				add(f.set("ports"), join(protocol, from), to)
			}
			add(f.set("forwarded"), join(protocol, from, to), nil)
		}
	}
	return all
}

// port reads the element of a map with host ports, and the address of the pod that it belongs to. ok is false if the
// element is not one that elements makes.
func (f family) port(addressed bool, e nftables.SetElement) (pod netip.Addr, p Port, ok bool) {
	key, host := e.Key, netip.IPv6Unspecified()
	if f == ipv4 {
		host = netip.IPv4Unspecified()
	}
	size := int(f.size)
	if addressed {
		if len(key) < size {
			return pod, p, false
		}
		host, _ = netip.AddrFromSlice(key[:size])
		key = key[size:]
	}
	if len(key) != 2*width || len(e.Val) != size+width {
		return pod, p, false
	}
	pod, ok = netip.AddrFromSlice(e.Val[:size])
	return pod, Port{
		Protocol: key[0], HostIP: host,
		HostPort: binary.BigEndian.Uint16(key[width:]), Port: binary.BigEndian.Uint16(e.Val[size:]),
	}, ok
}
