package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// lookupTimeout limits the DNS lookup of the node's name.
const lookupTimeout = 2 * time.Second

// errNoAddress means that the machine has no network, or not yet.
var errNoAddress = errors.New("the node's name is not an address of this machine, and there is no default route")

// nodeIPs returns the configured addresses, or the default address.
func (c Config) nodeIPs(name string, host []netip.Addr) ([]netip.Addr, error) {
	if len(c.IPs) == 0 {
		ip, ok := c.defaultIP(name, host, netip.Addr{})
		if !ok {
			return nil, errNoAddress
		}
		return []netip.Addr{ip}, nil
	}
	ips := make([]netip.Addr, 0, len(c.IPs))
	for _, ip := range c.IPs {
		if ip.IsUnspecified() {
			found, ok := c.defaultIP(name, host, ip)
			if !ok {
				return nil,
					fmt.Errorf(
						"find the node's address for --node-ip %s: no default route of that family; name the address",
						ip)
			}
			ip = found
		} else if err := checkIP(ip, host); err != nil {
			return nil, fmt.Errorf("use --node-ip %s: %w", ip, err)
		}
		ips = append(ips, ip)
	}
	if len(ips) > 2 || len(ips) == 2 && ips[0].Is4() == ips[1].Is4() {
		return nil, fmt.Errorf("use --node-ip %v: one address, or one of each family", c.IPs)
	}
	return ips, nil
}

// defaultIP returns the node's name if that is an address. Otherwise it returns an address of this machine that the
// name resolves to, or else the address on the interface of the default route. This is the kubelet's order. An
// unspecified bind selects its family; the zero Addr selects any.
func (c Config) defaultIP(name string, host []netip.Addr, bind netip.Addr) (netip.Addr, bool) {
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip, true
	}
	if c.Lookup != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
		defer cancel()
		// A failed lookup counts as an unknown name.
		found, _ := c.Lookup(ctx, name)
		if ip, ok := ofName(found, host, bind); ok {
			return ip, true
		}
	}
	return routed(bind)
}

// ofName chooses among the addresses that a name resolves to. It returns one that this machine has, of the family of
// bind. If bind is the zero Addr, it prefers IPv4.
func ofName(found, host []netip.Addr, bind netip.Addr) (best netip.Addr, ok bool) {
	for _, ip := range found {
		ip = ip.Unmap()
		if checkIP(ip, host) != nil || bind.IsValid() && bind.Is4() != ip.Is4() {
			continue
		}
		if ip.Is4() {
			return ip, true
		}
		if !ok {
			best, ok = ip, true
		}
	}
	return best, ok
}

func hostAddresses() ([]netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list addresses of this machine: %w", err)
	}
	all := make([]netip.Addr, 0, len(addrs))
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				all = append(all, ip.Unmap())
			}
		}
	}
	return all, nil
}

// routed returns the address on the interface of the default route. An unspecified bind selects its family; the zero
// Addr selects whichever comes first.
func routed(bind netip.Addr) (netip.Addr, bool) {
	want := net.IPv4zero
	if bind.Is6() {
		want = net.IPv6unspecified
	}
	found, err := utilnet.ResolveBindAddress(want)
	if err != nil {
		return netip.Addr{}, false
	}
	ip, ok := netip.AddrFromSlice(found)
	ip = ip.Unmap()
	return ip, ok && (!bind.IsValid() || ip.Is4() == bind.Is4())
}

// checkIP returns an error if an address cannot be the node's.
func checkIP(ip netip.Addr, host []netip.Addr) error {
	switch {
	case ip.IsLoopback():
		return errors.New("it is a loopback address")
	case ip.IsMulticast():
		return errors.New("it is a multicast address")
	case ip.IsLinkLocalUnicast():
		return errors.New("it is a link-local address")
	case !slices.Contains(host, ip.WithZone("")):
		return errors.New("no interface of this machine has it")
	}
	return nil
}

func fallback(host []netip.Addr) netip.Addr {
	for _, ip := range host {
		if checkIP(ip, host) == nil {
			return ip
		}
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
