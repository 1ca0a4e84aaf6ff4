package nat

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/netdump"
)

// hostPorts is the chain for packets to an address of the machine.
const hostPorts = "hostports"

// Table is the table of a bridge. Its calls may run side by side, but the caller has to order Replace and changes of
// single pods.
type Table struct{ bridge string }

// New names the table of a bridge.
func New(bridge string) Table { return Table{bridge} }

// Name returns the table's name: the bridge's, in characters that nftables allows, and "_pods".
func (t Table) Name() string { return strings.ReplaceAll(t.bridge, "-", "_") + "_pods" }

func (t Table) table() *nftables.Table {
	return &nftables.Table{Name: t.Name(), Family: nftables.TableFamilyINet}
}

// Replace writes the whole table in one transaction, with the elements of all pods. Connections are not affected.
func (t Table) Replace(pods []Pod) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("write packet filter table %s: %w", t.Name(), err)
	}
	table := t.table()
	c.AddTable(table) // so that there is one to delete
	c.DelTable(table)
	c.AddTable(table)
	for _, f := range []family{ipv4, ipv6} {
		for _, set := range f.sets(table) {
			var all []nftables.SetElement
			for _, p := range pods {
				all = append(all, elements(p)[set.Name]...)
			}
			if err := errors.Join(c.AddSet(set, nil), addElements(c, set, all)); err != nil {
				return fmt.Errorf("write packet filter table %s: %w", t.Name(), err)
			}
		}
	}
	t.addRules(c, table)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("write packet filter table %s: %w", t.Name(), err)
	}
	return nil
}

// addElements adds elements to a set in messages of moderate size.
func addElements(c *nftables.Conn, set *nftables.Set, all []nftables.SetElement) error {
	const most = 100
	for part := range slices.Chunk(all, most) {
		if err := c.SetAddElements(set, part); err != nil {
			return err
		}
	}
	return nil
}

// addRules adds the chains and their rules.
func (t Table) addRules(c *nftables.Conn, table *nftables.Table) {
	accept := nftables.ChainPolicyAccept
	base := func(name string, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
		return c.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook,
			Priority: priority, Policy: &accept})
	}
	ports := c.AddChain(&nftables.Chain{Name: hostPorts, Table: table})
	in := base("prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	own := base("output", nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	out := base("postrouting", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	add := func(chain *nftables.Chain, parts ...[]expr.Any) {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: slices.Concat(parts...)})
	}
	jump := []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: hostPorts}}
	add(in, local(), jump)
	// The kernel has no route_localnet for IPv6: it would drop the packet.
	add(own, ipv6.is(), []expr.Any{header(ipv6.destination, ipv6.size, first), equal(netip.IPv6Loopback().AsSlice()...),
		&expr.Verdict{Kind: expr.VerdictReturn}})
	add(own, local(), jump)
	for _, f := range []family{ipv4, ipv6} {
		add(ports, f.toHostPort(true))
		add(ports, f.toHostPort(false))
		masquerade := []expr.Any{&expr.Masq{}}
		add(out, f.is(), f.fromPod(), over(t.bridge, expr.CmpOpNeq), f.unicast(), masquerade)
		// The pod would answer a pod directly, and the sender would not know the answer's address.
		add(out, f.is(), over(t.bridge, expr.CmpOpEq), redirected(), f.fromPod(), f.ofHostPort(), masquerade)
	}
	add(out, ipv4.is(), over(t.bridge, expr.CmpOpEq), redirected(),
		[]expr.Any{header(ipv4.source, 1, first), equal(loopback), &expr.Masq{}})
}

// Add adds the elements of a pod. The error is unix.ENOENT if another program has removed the table.
func (t Table) Add(p Pod) error {
	if err := t.change(p, addElements); err != nil {
		return fmt.Errorf("add a pod to packet filter table %s: %w", t.Name(), err)
	}
	return nil
}

// Remove removes the elements of a pod. The error is unix.ENOENT if one of them does not exist, and then all others
// stay.
func (t Table) Remove(p Pod) error {
	err := t.change(p, func(c *nftables.Conn, set *nftables.Set, all []nftables.SetElement) error {
		return c.SetDeleteElements(set, all)
	})
	if err != nil {
		return fmt.Errorf("remove a pod from packet filter table %s: %w", t.Name(), err)
	}
	return nil
}

// change applies a change to all elements of a pod, in one transaction.
func (t Table) change(p Pod, do func(*nftables.Conn, *nftables.Set, []nftables.SetElement) error) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	all := elements(p)
	for _, f := range []family{ipv4, ipv6} {
		for _, set := range f.sets(t.table()) {
			if len(all[set.Name]) == 0 {
				continue
			}
			if err := do(c, set, all[set.Name]); err != nil {
				return err
			}
		}
	}
	return c.Flush()
}

// Forget makes the kernel forget UDP conversations with the pod's host ports. Their packets would still go to the pod
// that had the port before.
func Forget(p Pod) error {
	for _, port := range p.Ports {
		if port.Protocol != unix.IPPROTO_UDP {
			continue
		}
		for _, kernel := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			filter := &netlink.ConntrackFilter{}
			err := errors.Join(filter.AddProtocol(unix.IPPROTO_UDP),
				filter.AddPort(netlink.ConntrackOrigDstPort, port.HostPort))
			if err == nil {
				err = netdump.Repeat(func() error {
					_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, kernel, filter)
					return err
				})
			}
			if err != nil {
				return fmt.Errorf("forget conversations with UDP host port %d: %w", port.HostPort, err)
			}
		}
	}
	return nil
}

// Ports returns the host ports of pods by their addresses, as the kernel has them. Without a table there are none.
func (t Table) Ports() (map[netip.Addr][]Port, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("read packet filter table %s: %w", t.Name(), err)
	}
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("list packet filter tables: %w", err)
	}
	if !slices.ContainsFunc(tables, func(other *nftables.Table) bool { return other.Name == t.Name() }) {
		return nil, nil
	}
	there, err := c.GetSets(t.table())
	if err != nil {
		return nil, fmt.Errorf("read packet filter table %s: %w", t.Name(), err)
	}
	all := map[netip.Addr][]Port{}
	for _, f := range []family{ipv4, ipv6} {
		for _, set := range f.sets(t.table()) {
			named := func(other *nftables.Set) bool { return other.Name == set.Name && other.IsMap }
			if !slices.ContainsFunc(there, named) {
				continue
			}
			found, err := c.GetSetElements(set)
			if err != nil {
				return nil, fmt.Errorf("read map %s of packet filter table %s: %w", set.Name, t.Name(), err)
			}
			for _, e := range found {
				if pod, port, ok := f.port(set.Name == f.set("addressed"), e); ok {
					all[pod] = append(all[pod], port)
				}
			}
		}
	}
	return all, nil
}

// Delete removes the table. Without one it does nothing.
func (t Table) Delete() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("remove packet filter table %s: %w", t.Name(), err)
	}
	c.AddTable(t.table()) // so that there is one to delete
	c.DelTable(t.table())
	if err := c.Flush(); err != nil {
		return fmt.Errorf("remove packet filter table %s: %w", t.Name(), err)
	}
	return nil
}
