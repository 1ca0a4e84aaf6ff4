package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/base/netdump"
)

const (
	// Interface is the name of the device in a pod.
	Interface = "eth0"
	// upTimeout is how long the bridge may take to use a new device. It takes less than a millisecond.
	upTimeout = 5 * time.Second
)

// Pod is a sandbox with its addresses in the built-in network.
type Pod struct {
	ID        string
	Addresses []netip.Prefix
}

// Attach makes the devices of a pod, with its addresses and routes. It returns the device on the bridge and the
// Ethernet address of the pod. namespace is a file of the pod's network namespace. After an error, Detach removes what
// it has made.
func Attach(ctx context.Context, bridge netlink.Link, p Pod, namespace string) (netlink.Link, net.HardwareAddr, error) {
	file, err := os.Open(namespace)
	if err != nil {
		return nil, nil, fmt.Errorf("attach sandbox %s: %w", p.ID, err)
	}
	defer file.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Flags, attrs.MasterIndex = Name(p.ID), net.FlagUp, bridge.Attrs().Index
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr = Interface, hardware(p.Addresses)
	veth.PeerNamespace = netlink.NsFd(file.Fd())
	if err := netlink.LinkAdd(veth); err != nil {
		return nil, nil, fmt.Errorf("attach sandbox %s: make device %s: %w", p.ID, attrs.Name, err)
	}
	err = netlink.LinkSetAlias(veth, alias(bridge.Attrs().Name, p.ID, p.Addresses))
	if err == nil { // a pod reaches its own host ports through the bridge
		err = netlink.LinkSetHairpin(veth, true)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("attach sandbox %s: set up device %s: %w", p.ID, attrs.Name, err)
	}
	if err := configure(netns.NsHandle(file.Fd()), p.Addresses); err != nil {
		return nil, nil, fmt.Errorf("attach sandbox %s: set up %s of the pod: %w", p.ID, Interface, err)
	}
	if err := awaitUp(ctx, attrs.Name); err != nil {
		return nil, nil, fmt.Errorf("attach sandbox %s: %w", p.ID, err)
	}
	return veth, veth.PeerHardwareAddr, nil
}

// configure sets the addresses and routes of a pod. There is no detection of duplicate IPv6 addresses (RFC 4862), which
// would delay the pod by a second: the leases know that each address is used once.
func configure(namespace netns.NsHandle, addresses []netip.Prefix) error {
	inside, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer inside.Close()
	eth, err := inside.LinkByName(Interface)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		address := &netlink.Addr{IPNet: &net.IPNet{IP: a.Addr().AsSlice(),
			Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}}
		if a.Addr().Is6() {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := inside.AddrAdd(eth, address); err != nil {
			return fmt.Errorf("add address %s: %w", a, err)
		}
	}
	if err := inside.LinkSetUp(eth); err != nil {
		return err
	}
	for _, a := range addresses {
		route := &netlink.Route{LinkIndex: eth.Attrs().Index, Gw: gateway(a).AsSlice()}
		if err := inside.RouteAdd(route); err != nil {
			return fmt.Errorf("add default route over %s: %w", gateway(a), err)
		}
	}
	return nil
}

// awaitUp waits until the kernel has noticed that both ends of a device are up. Before, the bridge drops its packets.
func awaitUp(ctx context.Context, name string) error {
	up := func() (bool, error) {
		l, err := netlink.LinkByName(name)
		return err == nil && l.Attrs().OperState == netlink.OperUp, err
	}
	if ok, err := up(); ok || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	changes := make(chan netlink.LinkUpdate)
	done := make(chan struct{})
	if err := netlink.LinkSubscribe(changes, done); err != nil {
		return fmt.Errorf("watch device %s: %w", name, err)
	}
	defer func() {
		close(done)
		go func() {
			for range changes { // LinkSubscribe writes until it has closed the channel
				continue
			}
		}()
	}()
	for {
		if ok, err := up(); ok || err != nil {
			return err
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return fmt.Errorf("device %s is not up after %s: %w", name, upTimeout, context.Cause(ctx))
		}
	}
}

// Detach removes the devices of a pod. Without any it does nothing.
func Detach(id string) error {
	err := Delete(Name(id))
	if err != nil {
		return fmt.Errorf("detach sandbox %s: %w", id, err)
	}
	return nil
}

// Delete removes a device. Without one it does nothing.
func Delete(name string) error {
	l, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = netlink.LinkDel(l)
	}
	// A device also goes with the network namespace of its other end.
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove device %s: %w", name, err)
	}
	return nil
}

// List returns the pods that have a device for the bridge.
func List(bridge string) ([]Pod, error) {
	all, err := netdump.Complete(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices of pods: %w", err)
	}
	var pods []Pod
	for _, l := range all {
		if p, ok := parse(bridge, l.Attrs().Alias); ok && l.Type() == "veth" && l.Attrs().Name == Name(p.ID) {
			pods = append(pods, p)
		}
	}
	return pods, nil
}
