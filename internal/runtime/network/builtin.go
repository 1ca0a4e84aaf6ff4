package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/runtime/network/endpoint"
	"github.com/berth-run/berth/internal/runtime/network/shape"
)

// Attach implements plugin.Network: it attaches a pod to the built-in network. After an error, Detach removes what it
// has made.
func (n *Network) Attach(ctx context.Context, id, namespace string,
	config *runtimeapi.PodSandboxConfig) ([]netip.Prefix, net.HardwareAddr, error) {
	limits, err := shape.Read(config.GetAnnotations())
	if err != nil {
		return nil, nil, err
	}
	ports, err := portsOf(config.GetPortMappings())
	if err != nil {
		return nil, nil, err
	}
	used, err := readLeases(leases(n.config))
	if err != nil {
		return nil, nil, err
	}
	bridge, ranges, err := n.bridge(ctx)
	if err != nil {
		return nil, nil, err
	}
	if len(ranges) == 0 {
		return nil, nil, errors.New("the built-in network has no address range for this machine")
	}
	addresses, mac, err := n.pods.Attach(ctx, bridge, ranges, used, endpoint.Pod{ID: id, Namespace: namespace},
		endpoint.Request{Ports: ports, Limits: limits})
	if err == nil && len(ports) > 0 {
		err = n.arrangeLocalnet()
	}
	return addresses, mac, err
}

// Detach implements plugin.Network: it detaches a pod from the built-in network. leased is false if the pod is not on
// it. The removal of devices goes on in the background.
func (n *Network) Detach(id string) (leased bool, err error) {
	leased, err = n.pods.Detach(id)
	if !leased || err != nil {
		return leased, err
	}
	n.cleaned.Store(id, nil)
	return true, n.arrangeLocalnet()
}

// bridge returns the bridge, which it makes again if it is gone, and the ranges of new pods.
func (n *Network) bridge(ctx context.Context) (netlink.Link, []netip.Prefix, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, err := netlink.LinkByName(n.config.Bridge)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		if _, err = n.makeBuiltIn(ctx); err == nil {
			found, err = netlink.LinkByName(n.config.Bridge)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("find bridge %q: %w", n.config.Bridge, err)
	}
	return found, podCIDRs(n.config.PodCIDRs, n.machine.IPv6), nil
}
