package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/netdump"
)

// makeBridge creates the bridge of the built-in network and makes the machine forward packets. It turns duplicate
// address detection (RFC 4862) off on the bridge: the first pod could not use the gateway's IPv6 address for a second.
// No other host can have that address, since only this node's pods are on the bridge. The bridge gets the gateways'
// addresses at once, so that others see that the ranges are taken.
func (n *Network) makeBridge(ranges []netip.Prefix) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = n.config.Bridge
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make bridge %q: %w", attrs.Name, err)
	}
	if err := setSysctls(n.config.Bridge, ranges); err != nil {
		n.config.Log.Warn("cannot set kernel parameters for pods, continuing without them", "err", err)
	}
	used, err := readLeases(leases(n.config))
	if err != nil {
		return err
	}
	used = append(used, n.pods.Addresses()...)
	link, err := netlink.LinkByName(attrs.Name)
	if err != nil {
		return fmt.Errorf("find bridge %q: %w", attrs.Name, err)
	}
	if err := netlink.LinkSetAlias(link, n.config.alias()); err != nil {
		return fmt.Errorf("describe bridge %q: %w", attrs.Name, err)
	}
	// Without an Ethernet address of its own, the bridge has the lowest one of its devices. Pods would have to find it
	// again whenever it changes.
	if err := netlink.LinkSetHardwareAddr(link, link.Attrs().HardwareAddr); err != nil {
		return fmt.Errorf("set Ethernet address of bridge %q: %w", attrs.Name, err)
	}
	for _, r := range ranges {
		if err := arrangeGateways(link, r, used); err != nil {
			return fmt.Errorf("set addresses of bridge %q: %w", attrs.Name, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set bridge %q up: %w", attrs.Name, err)
	}
	return nil
}

// setSysctls sets the kernel parameters that pods on the bridge need. After an error it continues with the rest, and
// returns all errors.
func setSysctls(bridge string, ranges []netip.Prefix) (errs error) {
	values := map[string]string{}
	for _, r := range ranges {
		if r.Addr().Is4() {
			values["ipv4/ip_forward"] = "1"
			continue
		}
		values["ipv6/conf/all/forwarding"] = "1"
		values[filepath.Join("ipv6/conf", bridge, "accept_dad")] = "0"
		// A pod could otherwise become the machine's router (CVE-2020-10749).
		values[filepath.Join("ipv6/conf", bridge, "accept_ra")] = "0"
	}
	for name, value := range values {
		path := filepath.Join("/proc/sys/net", name)
		if now, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(now)) == value {
			continue
		}
		errs = errors.Join(errs, os.WriteFile(path, []byte(value), 0))
	}
	return errs
}

// leases is the directory with the leases of pods whose network CNI plugins have made.
func leases(c Config) string { return filepath.Join(c.LeaseDir, c.Bridge) }

// readLeases lists the addresses that pods have. The plugin host-local keeps one file per address, named after it.
func readLeases(dir string) ([]netip.Addr, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read pod address leases: %w", err)
	}
	var leases []netip.Addr
	for _, entry := range entries {
		if a, err := netip.ParseAddr(entry.Name()); err == nil {
			leases = append(leases, a)
		}
	}
	return leases, nil
}

// arrangeGateways makes the gateway of range r the first address of its family on a bridge that has gateways of other
// ranges. Otherwise the bridge plugin would refuse the bridge. It removes the gateways of ranges that no pod uses any
// more.
func arrangeGateways(link netlink.Link, r netip.Prefix, leases []netip.Addr) error {
	family := netlink.FAMILY_V4
	if r.Addr().Is6() {
		family = netlink.FAMILY_V6
	}
	addresses, err := netdump.Complete(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
	if err != nil {
		return err
	}
	var present []netip.Prefix
	for _, a := range addresses {
		at, _ := netip.AddrFromSlice(a.IP)
		ones, _ := a.Mask.Size()
		if at = at.Unmap(); !at.IsLinkLocalUnicast() {
			present = append(present, netip.PrefixFrom(at, ones))
		}
	}
	remove, add := gateways(present, r, leases)
	for _, p := range remove {
		if err := netlink.AddrDel(link, address(p)); err != nil {
			return fmt.Errorf("remove %s: %w", p, err)
		}
	}
	for _, p := range add {
		if err := netlink.AddrAdd(link, address(p)); err != nil {
			return fmt.Errorf("add %s: %w", p, err)
		}
	}
	return nil
}

func address(p netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
}

// removeBridge removes the bridge of the built-in network.
func removeBridge(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove bridge %q: %w", name, err)
	}
	if link.Type() != "bridge" {
		return fmt.Errorf("remove bridge %q: it is a %s", name, link.Type())
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("remove bridge %q: %w", name, err)
	}
	return nil
}
