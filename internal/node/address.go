package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// nodeIPs are the addresses asked for, or the one that reaches the default
// route. A machine without a network still runs pods: its address is loopback.
func nodeIPs(asked []netip.Addr, log *slog.Logger) ([]netip.Addr, error) {
	host, err := hostAddresses()
	if err != nil {
		return nil, err
	}
	if len(asked) == 0 {
		ip, ok := routed(netip.Addr{})
		if !ok {
			ip = fallback(host)
			log.Warn("No default route: taking another address of this machine as the node's", "ip", ip)
		}
		return []netip.Addr{ip}, nil
	}
	ips := make([]netip.Addr, 0, len(asked))
	for _, ip := range asked {
		if ip.IsUnspecified() {
			found, ok := routed(ip)
			if !ok {
				return nil, fmt.Errorf("find the node's address for --node-ip %s: no default route of that family; name the address", ip)
			}
			ip = found
		} else if err := checkIP(ip, host); err != nil {
			return nil, fmt.Errorf("use --node-ip %s: %w", ip, err)
		}
		ips = append(ips, ip)
	}
	if len(ips) > 2 || len(ips) == 2 && ips[0].Is4() == ips[1].Is4() {
		return nil, fmt.Errorf("use --node-ip %v: one address, or one of each family", asked)
	}
	return ips, nil
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

// routed is the address of the interface that the default route leaves by;
// bind is unspecified for that family, or zero for the one that comes first.
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

// checkIP says why an address cannot be the node's.
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
