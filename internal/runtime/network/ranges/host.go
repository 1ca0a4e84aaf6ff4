package ranges

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/netdump"
)

// Read returns the ranges that the machine reaches over interfaces other than the named one, which need not exist.
func Read(except string) ([]Taken, error) {
	links, err := netdump.Complete(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	var taken []Taken
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netdump.Complete(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC},
				netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			name := names[r.LinkIndex]
			// The local table repeats the addresses. A longer range there is one that the machine answers for.
			if p, ok := prefix(r.Dst); ok && name != except && (r.Table != unix.RT_TABLE_LOCAL || !p.IsSingleIP()) {
				taken = append(taken, Taken{p, describe(name, r.Table)})
			}
		}
		addresses, err := netdump.Complete(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, family) })
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		for _, a := range addresses {
			name := names[a.LinkIndex]
			if p, ok := prefix(a.IPNet); ok && name != except {
				taken = append(taken, Taken{p, "address of " + name})
			}
		}
	}
	return taken, nil
}

func describe(name string, table int) string {
	text := "route"
	if name != "" {
		text += " over " + name
	}
	if table != unix.RT_TABLE_MAIN {
		text += fmt.Sprintf(" in table %d", table)
	}
	return text
}

// prefix returns the range of a route or an address. A default route has none.
func prefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, size := n.Mask.Size()
	if !ok || size == 0 {
		return netip.Prefix{}, false
	}
	if a = a.Unmap(); a.Is4() && size == 128 {
		ones -= 96
	}
	return netip.PrefixFrom(a, ones).Masked(), true
}
