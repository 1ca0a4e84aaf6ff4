package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/netdump"
)

// library returns libcni with a cache.
func (n *Network) library(cache string) *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(n.config.BinDirs, cache, nil)
}

// add calls the plugins of a network for a new sandbox.
func (n *Network) add(ctx context.Context, list *libcni.NetworkConfigList, id string,
	config *runtimeapi.PodSandboxConfig) error {
	n.mu.Lock()
	cidrs := n.cidrs
	n.mu.Unlock()
	capabilities, err := capabilityArgs(config, cidrs)
	if err != nil {
		return err
	}
	result, err := n.library(n.config.CacheDirs[0]).AddNetworkList(ctx, list, &libcni.RuntimeConf{
		ContainerID: id, NetNS: n.Namespace(id), IfName: device, Args: args(id, config.GetMetadata()),
		CapabilityArgs: capabilities,
	})
	if err != nil {
		return fmt.Errorf("attach sandbox %s to network %s: %w", id, list.Name, err)
	}
	current, err := types100.NewResultFromResult(result)
	if err != nil {
		return fmt.Errorf("read addresses of sandbox %s: %w", id, err)
	}
	var addresses []netip.Addr
	for _, ip := range current.IPs {
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			addresses = append(addresses, a.Unmap())
		}
	}
	if len(addresses) == 0 {
		return fmt.Errorf("attach sandbox %s to network %s: its plugins gave no address", id, list.Name)
	}
	n.known.Store(id, addresses)
	return nil
}

// remove detaches a sandbox from the networks of a cache, with the configurations that it was attached with.
func (n *Network) remove(ctx context.Context, cache, id string) error {
	if _, unused := os.Stat(filepath.Join(cache, "results")); errors.Is(unused, fs.ErrNotExist) {
		return nil
	}
	library := n.library(cache)
	attached, err := library.GetCachedAttachments(id)
	if err != nil {
		return fmt.Errorf("read networks of sandbox %s: %w", id, err)
	}
	var errs []error
	for _, a := range attached {
		list, err := libcni.NetworkConfFromBytes(a.Config)
		if err == nil {
			path := a.NetNS
			if _, gone := os.Stat(path); gone != nil { // for plugins an empty path means that there is no namespace
				path = ""
			}
			err = library.DelNetworkList(ctx, list, &libcni.RuntimeConf{ContainerID: id, NetNS: path, IfName: a.IfName,
				Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs})
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("detach sandbox %s from network %s: %w", id, a.Network, err))
		}
	}
	return errors.Join(errs...)
}

// Abandoned reports whether a sandbox is attached to networks by libcni and none of its network namespaces exists.
func (n *Network) Abandoned(id string) bool {
	found := false
	for _, cache := range n.config.CacheDirs {
		attached, err := n.library(cache).GetCachedAttachments(id)
		if err != nil {
			return false
		}
		for _, a := range attached {
			if _, err := os.Stat(a.NetNS); err == nil {
				return false
			}
			found = true
		}
	}
	return found
}

// inNamespace reads the addresses of a pod's device from the kernel.
func inNamespace(path string) (addresses []netip.Addr, err error) {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }() // it is only read
	handle, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	link, err := handle.LinkByName(device)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := netdump.Complete(func() ([]netlink.Addr, error) { return handle.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	for _, f := range found {
		if a, ok := netip.AddrFromSlice(f.IP); ok && !a.IsLinkLocalUnicast() {
			addresses = append(addresses, a.Unmap())
		}
	}
	return addresses, nil
}
