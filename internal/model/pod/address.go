package pod

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// IPs returns the addresses of a pod, from the addresses of its sandbox and of its host: at most one of each family,
// starting with the family of the host's primary address. A pod on the host's network has the host's addresses.
func IPs(p *corev1.Pod, sandboxIPs, hostIPs []string) []string {
	if HostNetwork(p) {
		return hostIPs
	}
	first := 4
	if len(hostIPs) > 0 && Family(hostIPs[0]) != 0 {
		first = Family(hostIPs[0])
	}
	var chosen []string
	for _, want := range []int{first, 10 - first} {
		if i := slices.IndexFunc(sandboxIPs, func(ip string) bool { return Family(ip) == want }); i >= 0 {
			chosen = append(chosen, netip.MustParseAddr(sandboxIPs[i]).Unmap().String())
		}
	}
	return chosen
}

// Family returns the family of an address, 4 or 6. It returns 0 if ip is not an address.
func Family(ip string) int {
	a, err := netip.ParseAddr(ip)
	switch {
	case err != nil:
		return 0
	case a.Unmap().Is4():
		return 4
	}
	return 6
}
