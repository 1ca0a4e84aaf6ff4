package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// device is the name of a pod's network device.
const device = "eth0"

// BuiltIn is a network that needs no plugins.
type BuiltIn interface {
	// Attach attaches a sandbox to the network. It returns its addresses and its Ethernet address.
	Attach(ctx context.Context, id, namespace string, config *runtimeapi.PodSandboxConfig) ([]netip.Prefix,
		net.HardwareAddr, error)
	// Detach detaches a sandbox, also one whose Attach has failed. leased is false if it is not on the network.
	Detach(ctx context.Context, id string) (leased bool, err error)
	// Bridge is the name of the bridge of pods.
	Bridge() string
	// Type is the type of the plugin in a configuration that stands for this network.
	Type() string
	// Sweep removes the networks of sandboxes that are not in live. live has the namespace of each live sandbox by ID,
	// "" for none.
	Sweep(ctx context.Context, live map[string]string) error
	// UseRanges changes the ranges of new pods: CIDR[,CIDR].
	UseRanges(ctx context.Context, cidrs string) error
}

// Config configures a Network.
type Config struct {
	// ConfDir is the directory of the CNI configuration. BinDirs are the directories of the plugins.
	ConfDir string
	BinDirs []string
	// CacheDirs are libcni's caches. New sandboxes use the first one. Sandboxes of other programs may be in the others.
	CacheDirs []string
	// NamespaceDir is where the namespaces of pods are mounted.
	NamespaceDir string
	// BuiltIn is the built-in network; nil if there is none.
	BuiltIn BuiltIn
	Log     *slog.Logger
}

// Network is the pod network.
type Network struct {
	config Config
	// known has the addresses of sandboxes by their IDs, in the order of the plugins.
	known sync.Map
	mu    sync.Mutex
	cidrs string // the ranges that the cluster gives to the pods of this node
}

// New allocates a network.
func New(config Config) *Network { return &Network{config: config} }

// SetPodCIDR sets the ranges of new pods, CIDR[,CIDR], for the built-in network and for plugins with the capability
// ipRanges.
func (n *Network) SetPodCIDR(ctx context.Context, cidrs string) error {
	n.mu.Lock()
	n.cidrs = cidrs
	n.mu.Unlock()
	if n.config.BuiltIn == nil {
		return nil
	}
	return n.config.BuiltIn.UseRanges(ctx, cidrs)
}

// Ready returns why new pods cannot have a network, or nil.
func (n *Network) Ready() error {
	_, err := n.current()
	return err
}

// current reads the configuration of new pods: the first valid file of the directory.
func (n *Network) current() (*libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(n.config.ConfDir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, fmt.Errorf("read CNI configuration: %w", err)
	}
	slices.Sort(files)
	var bad error
	for _, file := range files {
		list, err := load(file)
		if err == nil && len(list.Plugins) > 0 {
			return list, nil
		}
		bad = errors.Join(bad, err)
	}
	if bad != nil {
		return nil, fmt.Errorf("read CNI configuration: %w", bad)
	}
	return nil, fmt.Errorf("no CNI configuration in %s; next: install a network plugin", n.config.ConfDir)
}

func load(file string) (*libcni.NetworkConfigList, error) {
	if filepath.Ext(file) == ".conflist" {
		return libcni.NetworkConfFromFile(file)
	}
	one, err := libcni.ConfFromFile(file) //nolint:staticcheck // files of a single plugin are still in use
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(one) //nolint:staticcheck // see above
}

// Namespace is where the namespace of a sandbox is mounted.
func (n *Network) Namespace(id string) string { return filepath.Join(n.config.NamespaceDir, id) }

// Start keeps the network namespace of a process and attaches it to the network. After an error, call Stop to clean up.
func (n *Network) Start(ctx context.Context, id string, pid int, config *runtimeapi.PodSandboxConfig) error {
	if err := keep(n.Namespace(id), pid); err != nil {
		return fmt.Errorf("keep network namespace of sandbox %s: %w", id, err)
	}
	list, err := n.current()
	if err != nil {
		return err
	}
	if b := n.config.BuiltIn; b != nil && list.Plugins[0].Network.Type == b.Type() {
		prefixes, _, err := b.Attach(ctx, id, n.Namespace(id), config)
		if err != nil {
			return fmt.Errorf("attach sandbox %s to the built-in network: %w", id, err)
		}
		var addresses []netip.Addr
		for _, p := range prefixes {
			addresses = append(addresses, p.Addr())
		}
		n.known.Store(id, addresses)
		return nil
	}
	return n.add(ctx, list, id, config)
}

// keep mounts the network namespace of a process.
func keep(path string, pid int) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return unix.Mount(fmt.Sprintf("/proc/%d/ns/net", pid), path, "", unix.MS_BIND, "")
}

// Stop detaches a sandbox from all networks and removes the mount of its namespace. It does nothing for a sandbox that
// no longer has a network. If the namespace is gone, plugins clean up without it.
func (n *Network) Stop(ctx context.Context, id string) error {
	n.known.Delete(id)
	var errs []error
	if n.config.BuiltIn != nil {
		if _, err := n.config.BuiltIn.Detach(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("detach sandbox %s from the built-in network: %w", id, err))
		}
	}
	for _, cache := range n.config.CacheDirs {
		errs = append(errs, n.remove(ctx, cache, id))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := drop(n.Namespace(id)); err != nil {
		return fmt.Errorf("remove network namespace of sandbox %s: %w", id, err)
	}
	return nil
}

func drop(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Addresses returns the addresses of a sandbox. pid is the process ID of its pause container. A sandbox without
// addresses is not on a network.
func (n *Network) Addresses(id string, pid int) []netip.Addr {
	if found, ok := n.known.Load(id); ok {
		return found.([]netip.Addr)
	}
	found, err := inNamespace(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		n.config.Log.Debug("cannot read the addresses of a sandbox", "sandbox", id, "err", err)
		return nil
	}
	if len(found) > 0 {
		n.known.Store(id, found)
	}
	return found
}

// Sweep removes the networks of sandboxes that are not in live. live has the namespace of each live sandbox by ID, ""
// for none. Call it while no sandbox starts.
func (n *Network) Sweep(ctx context.Context, live map[string]string) error {
	entries, err := os.ReadDir(n.config.NamespaceDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		if _, ok := live[e.Name()]; ok {
			continue
		}
		if err := n.Stop(ctx, e.Name()); err != nil {
			errs = append(errs, err)
			continue
		}
		n.config.Log.Info("network of a sandbox removed, Docker no longer has the sandbox", "sandbox", e.Name())
	}
	if n.config.BuiltIn != nil {
		errs = append(errs, n.config.BuiltIn.Sweep(ctx, live))
	}
	return errors.Join(errs...)
}
