package network

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/runtime/network/nat"
	"github.com/berth-run/berth/internal/runtime/network/plugin"
	"github.com/berth-run/berth/internal/runtime/network/ranges"
)

// builtInConf is the name of the file that configures the built-in network.
const builtInConf = "10-berth.conflist"

// parseRanges reads the ranges of an UpdateRuntimeConfig request: CIDR[,CIDR].
func parseRanges(text string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		cidr, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("pod CIDR %q: %w", part, err)
		}
		all = append(all, cidr)
	}
	return all, ValidateRanges(all)
}

// ValidateRanges reports ranges that a pod network cannot have.
func ValidateRanges(cidrs []netip.Prefix) error {
	var v4, v6 int
	for _, cidr := range cidrs {
		switch {
		case !cidr.IsValid():
			return fmt.Errorf("pod CIDR %s is not valid", cidr)
		case cidr != cidr.Masked():
			return fmt.Errorf("pod CIDR %s has host bits set, use %s", cidr, cidr.Masked())
		case cidr.Addr().Is4():
			v4++
		default:
			v6++
		}
	}
	if v4 > 1 || v6 > 1 {
		return fmt.Errorf("pod CIDRs %v: at most one IPv4 and one IPv6 range", cidrs)
	}
	return nil
}

// rangesText is the inverse of parseRanges.
func rangesText(cidrs []netip.Prefix) string {
	var texts []string
	for _, cidr := range cidrs {
		texts = append(texts, cidr.String())
	}
	return strings.Join(texts, ",")
}

// keep returns the ranges of pods, one of each family in chosen. A range of before stays if it is free, or if pods have
// leases of it. Otherwise the chosen range of its family replaces it.
func keep(before, chosen []netip.Prefix, taken []ranges.Taken, leases []netip.Addr) []netip.Prefix {
	var all []netip.Prefix
	for _, cidr := range chosen {
		for _, was := range before {
			_, overlaps := ranges.Overlap(was, taken)
			if was.Addr().Is4() == cidr.Addr().Is4() && (!overlaps || slices.ContainsFunc(leases, was.Contains)) {
				cidr = was
			}
		}
		all = append(all, cidr)
	}
	return all
}

// source says which configuration new pods' network comes from. Its text is for the log.
type source string

const (
	machine   source = "the machine's CNI configuration"
	builtIn   source = "the built-in network"
	noNetwork source = "none, waiting for a CNI configuration"
)

// source decides which network new pods get. configured says that the machine has a CNI configuration.
func (c Config) source(configured bool) source {
	switch {
	case configured:
		return machine
	case c.CNIOnly:
		return noNetwork
	}
	return builtIn
}

// podCIDRs returns the ranges of the address families that the machine supports.
func podCIDRs(cidrs []netip.Prefix, ipv6 bool) []netip.Prefix {
	var usable []netip.Prefix
	for _, cidr := range cidrs {
		if ipv6 || cidr.Addr().Is4() {
			usable = append(usable, cidr)
		}
	}
	return usable
}

// gateways decides how to make the gateway of range r the first address in the kernel's list for a bridge. present are
// the bridge's addresses of one family. The caller removes the addresses in remove, then adds those in add in this
// order. An address of another range stays while pods have leases in that range.
func gateways(present []netip.Prefix, r netip.Prefix, leases []netip.Addr) (remove, add []netip.Prefix) {
	want := netip.PrefixFrom(r.Addr().Next(), r.Bits())
	if slices.Equal(present, []netip.Prefix{want}) {
		return nil, nil
	}
	var used []netip.Prefix
	for _, p := range present {
		if p != want && slices.ContainsFunc(leases, p.Masked().Contains) {
			used = append(used, p)
		}
	}
	if len(present) > 0 && present[0] == want && len(used) == len(present)-1 {
		return nil, nil
	}
	if r.Addr().Is6() { // the kernel lists the newest IPv6 address first
		slices.Reverse(used)
		return present, append(used, want)
	}
	return present, append([]netip.Prefix{want}, used...)
}

// isConf reports whether containerd reads a file of this name as CNI configuration.
func isConf(name string) bool {
	return slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name))
}

// concerns reports whether a change of path can change the content of dir: path is dir, an entry of it, or a directory
// above it.
func concerns(path, dir string) bool {
	return path == dir || filepath.Dir(path) == dir || strings.HasPrefix(dir, strings.TrimSuffix(path, "/")+"/")
}

// networkConfig is the CNI configuration list that makes containerd report the built-in network.
// https://github.com/containernetworking/cni/blob/spec-v1.1.0/SPEC.md
func networkConfig(c Config, m Machine) map[string]any {
	return map[string]any{
		"cniVersion": "1.0.0",
		"name":       c.Bridge,
		"plugins": []any{map[string]any{
			"type":   plugin.Type,
			"bridge": c.Bridge,
			"ranges": podCIDRs(c.PodCIDRs, m.IPv6),
		}},
	}
}

// portsOf returns the host ports of a pod.
func portsOf(mappings []*runtimeapi.PortMapping) (all []nat.Port, err error) {
	protocols := map[runtimeapi.Protocol]uint8{
		runtimeapi.Protocol_TCP: nat.TCP, runtimeapi.Protocol_UDP: nat.UDP,
		runtimeapi.Protocol_SCTP: nat.SCTP,
	}
	for _, m := range mappings {
		if m.GetHostPort() <= 0 {
			continue
		}
		p := nat.Port{HostPort: uint16(m.GetHostPort()), Port: uint16(m.GetContainerPort())}
		var ok bool
		if p.Protocol, ok = protocols[m.GetProtocol()]; !ok || int32(p.HostPort) != m.GetHostPort() ||
			int32(p.Port) != m.GetContainerPort() || p.Port == 0 {
			return nil, fmt.Errorf("host port %d to port %d: not a port of TCP, UDP or SCTP", m.GetHostPort(),
				m.GetContainerPort())
		}
		if m.GetHostIp() != "" {
			if p.HostIP, err = netip.ParseAddr(m.GetHostIp()); err != nil {
				return nil, fmt.Errorf("host port %d: host IP %q: %w", m.GetHostPort(), m.GetHostIp(), err)
			}
		}
		all = append(all, p)
	}
	return all, nil
}
