package shape

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/runtime/network/link"
)

// device returns the name of the device that what a sandbox sends makes a detour over.
func device(id string) string { return "ifb" + link.Name(id)[len("veth"):] }

// Apply limits a pod whose device on the bridge is host.
func Apply(host netlink.Link, id string, l Limits) error {
	if l.Ingress > 0 {
		if err := limit(host, l.Ingress); err != nil {
			return fmt.Errorf("limit what the pod receives: %w", err)
		}
	}
	if l.Egress > 0 {
		if err := limitEgress(host, id, l.Egress); err != nil {
			return fmt.Errorf("limit what the pod sends: %w", err)
		}
	}
	return nil
}

// limit limits what leaves a device.
func limit(on netlink.Link, rate uint64) error {
	b := bucketOf(rate)
	return netlink.QdiscAdd(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: on.Attrs().Index, Handle: netlink.MakeHandle(1, 0),
			Parent: netlink.HANDLE_ROOT},
		Rate: b.rate, Limit: b.limit, Buffer: netlink.Xmittime(b.rate, b.burst),
	})
}

// limitEgress makes all packets that arrive over host take a detour over a device of its own, and limits that device.
func limitEgress(host netlink.Link, id string, rate uint64) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Flags, attrs.MTU = device(id), net.FlagUp, host.Attrs().MTU
	ifb := &netlink.Ifb{LinkAttrs: attrs}
	if err := netlink.LinkAdd(ifb); err != nil {
		return fmt.Errorf("make device %s: %w; next: load the module ifb", attrs.Name, err)
	}
	if err := limit(ifb, rate); err != nil {
		return err
	}
	arriving := netlink.MakeHandle(0xffff, 0)
	err := netlink.QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: host.Attrs().Index, Handle: arriving, Parent: netlink.HANDLE_INGRESS}})
	if err != nil {
		return err
	}
	return netlink.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: host.Attrs().Index, Parent: arriving, Priority: 1,
			Protocol: unix.ETH_P_ALL},
		Actions: []netlink.Action{netlink.NewMirredAction(ifb.Attrs().Index)},
	})
}

// Remove removes the device of a sandbox that Apply has made. Without one it does nothing. The rest goes with the pod's
// device on the bridge.
func Remove(id string) error { return link.Delete(device(id)) }
