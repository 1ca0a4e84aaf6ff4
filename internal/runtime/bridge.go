package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// makeBridge makes the bridge of the built-in network before the CNI plugin does. The gateway's IPv6
// address could else not be used for the first second of the first pod: the kernel would look for others
// that have it (duplicate address detection, RFC 4862), which nobody can on a bridge of this node's pods.
// The addresses themselves are the plugin's to add, with the first pod.
func (n *podNetwork) makeBridge(ranges []netip.Prefix) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = n.config.Bridge
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make bridge %q: %w", attrs.Name, err)
	}
	if n.host.ipv6 {
		if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", attrs.Name, "accept_dad"), []byte("0"),
			0); err != nil {
			n.config.Log.Warn("The gateway's IPv6 address is usable only a second after the first pod's start", "err",
				err)
		}
	}
	leases, err := readLeases(filepath.Join(n.layout().addresses(), n.config.Bridge))
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName(attrs.Name)
	if err != nil {
		return fmt.Errorf("find bridge %q: %w", attrs.Name, err)
	}
	for _, r := range ranges {
		if err := arrangeGateways(link, r, leases); err != nil {
			return fmt.Errorf("set addresses of bridge %q: %w", attrs.Name, err)
		}
	}
	return nil
}

// readLeases is the addresses that pods have. The plugin host-local has a file by
// the name of each.
func readLeases(dir string) ([]netip.Addr, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the addresses of pods: %w", err)
	}
	var leases []netip.Addr
	for _, entry := range entries {
		if a, err := netip.ParseAddr(entry.Name()); err == nil {
			leases = append(leases, a)
		}
	}
	return leases, nil
}

// arrangeGateways lets a bridge that has gateways of other ranges have that of this
// one: the plugin refuses the bridge unless the gateway that it wants is the first
// one of its family. Those that no pod uses any more are removed.
func arrangeGateways(link netlink.Link, r netip.Prefix, leases []netip.Addr) error {
	family := netlink.FAMILY_V4
	if r.Addr().Is6() {
		family = netlink.FAMILY_V6
	}
	addresses, err := netlink.AddrList(link, family)
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

// RemoveNetwork removes the bridge of the built-in network. Call it only when no pod is left; the
// next pod makes it anew.
func (r *Runtime) RemoveNetwork() error {
	link, err := netlink.LinkByName(r.config.Bridge)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove bridge %q: %w", r.config.Bridge, err)
	}
	if link.Type() != "bridge" {
		return fmt.Errorf("remove bridge %q: it is a %s", r.config.Bridge, link.Type())
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("remove bridge %q: %w", r.config.Bridge, err)
	}
	return nil
}
