package plugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/containerd/go-cni"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/runtime/network/link"
	"github.com/berth-run/berth/internal/runtime/replace"
)

// Type is the type of the built-in network in containerd's configuration. There is no CNI plugin of this name.
const Type = "berth"

// Network is the built-in network.
type Network interface {
	// Attach attaches a sandbox to the network. It returns its addresses and its Ethernet address.
	Attach(ctx context.Context, id, namespace string, config *runtimeapi.PodSandboxConfig) ([]netip.Prefix,
		net.HardwareAddr, error)
	// Detach detaches a sandbox, also one whose Attach has failed. leased is false if it is not on the network.
	Detach(id string) (leased bool, err error)
}

// plugin serves the CRI plugin's calls about the network of pods: with the built-in network, or with containerd's own
// implementation of CNI and the machine's configuration.
type plugin struct {
	cni.CNI // containerd's own
	network Network
}

// Use makes containerd's CRI plugin call a built-in network. Call it before the first sandbox starts.
//
// The CRI plugin has no option for this. So Use replaces the values in a map that only a private field leads to. The
// types of the map are public. The error says that containerd has changed, which every test of the runtime notices.
func Use(service any, n Network) error {
	stock, err := replace.Field[map[string]cni.CNI](service, "Closer", "netPlugin")
	if err != nil {
		return fmt.Errorf("use the built-in network: %w", err)
	}
	for name, own := range *stock {
		(*stock)[name] = plugin{own, n}
	}
	return nil
}

// builtIn reports whether new pods get the built-in network. containerd reads its configuration a moment after it
// was written, and reports the network as ready from then on.
func (p plugin) builtIn() bool {
	networks := p.GetConfig().Networks
	return len(networks) > 0 && len(networks[0].Config.Plugins) > 0 &&
		networks[0].Config.Plugins[0].Network.Type == Type
}

// configKey is the key of a sandbox's configuration in the context of a RunPodSandbox call.
type configKey struct{}

// WithConfig returns the context for a RunPodSandbox call. The CRI plugin does not pass the configuration on in a form
// that can be read.
func WithConfig(ctx context.Context, config *runtimeapi.PodSandboxConfig) context.Context {
	return context.WithValue(ctx, configKey{}, config)
}

// Setup implements cni.CNI.
func (p plugin) Setup(ctx context.Context, id, path string, opts ...cni.NamespaceOpts) (*cni.Result, error) {
	if !p.builtIn() {
		return p.CNI.Setup(ctx, id, path, opts...)
	}
	config, ok := ctx.Value(configKey{}).(*runtimeapi.PodSandboxConfig)
	if !ok {
		return nil, errors.New("the call does not come from the CRI")
	}
	addresses, mac, err := p.network.Attach(ctx, id, path, config)
	if err != nil {
		return nil, err
	}
	return resultOf(addresses, mac, path), nil
}

// resultOf describes the network of a pod to the CRI plugin.
func resultOf(addresses []netip.Prefix, mac net.HardwareAddr, namespace string) *cni.Result {
	device := &cni.Config{Mac: mac.String(), Sandbox: namespace}
	for _, a := range addresses {
		device.IPConfigs = append(device.IPConfigs,
			&cni.IPConfig{IP: a.Addr().AsSlice(), Gateway: a.Masked().Addr().Next().AsSlice()})
	}
	return &cni.Result{Interfaces: map[string]*cni.Config{link.Interface: device}}
}

// SetupSerially implements cni.CNI.
func (p plugin) SetupSerially(ctx context.Context, id, path string, opts ...cni.NamespaceOpts) (*cni.Result, error) {
	if p.builtIn() {
		return p.Setup(ctx, id, path, opts...)
	}
	return p.CNI.SetupSerially(ctx, id, path, opts...)
}

// Remove implements cni.CNI. A pod that is not on the built-in network is on one of CNI plugins. Package network
// has detached it, unless that is the current network.
func (p plugin) Remove(ctx context.Context, id, path string, opts ...cni.NamespaceOpts) error {
	if leased, err := p.network.Detach(id); leased || err != nil {
		return err
	}
	if p.builtIn() {
		return nil
	}
	return p.CNI.Remove(ctx, id, path, opts...)
}
