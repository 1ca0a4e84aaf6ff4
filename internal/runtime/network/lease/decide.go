package lease

import (
	"encoding/binary"
	"net/netip"
)

// next returns the first free address of a range after last, and starts again at the range's start. An address is used
// again as late as possible, because other pods and the kernel's connection tracking remember its previous pod. The
// first two addresses are the network's and the gateway's, and the last one of IPv4 is for broadcasts.
func next(r netip.Prefix, last netip.Addr, used map[netip.Addr]bool) (netip.Addr, bool) {
	first := r.Masked().Addr().Next().Next()
	usable := func(a netip.Addr) bool { return a.IsValid() && r.Contains(a) && (a.Is6() || a != broadcast(r)) }
	if !usable(first) {
		return netip.Addr{}, false
	}
	at := first
	if last.IsValid() && usable(last.Next()) && last.Compare(first) >= 0 {
		at = last.Next()
	}
	// Among one address more than are used there is a free one, if the range has so many.
	for range len(used) + 1 {
		if !used[at] {
			return at, true
		}
		if at = at.Next(); !usable(at) {
			at = first
		}
	}
	return netip.Addr{}, false
}

// broadcast returns the last address of an IPv4 range.
func broadcast(r netip.Prefix) netip.Addr {
	bytes := r.Masked().Addr().As4()
	value := binary.BigEndian.Uint32(bytes[:]) | (1<<(32-r.Bits()) - 1)
	binary.BigEndian.PutUint32(bytes[:], value)
	return netip.AddrFrom4(bytes)
}
