package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/runtime/network/endpoint"
	"github.com/berth-run/berth/internal/runtime/network/plugin"
)

// Config configures the pod network of a runtime.
type Config struct {
	// Dir is the directory that containerd reads its CNI configuration from. Only this package writes there.
	Dir string
	// CNIConfDir is the machine's directory of CNI configuration. While it holds any, pods start on that network. It
	// need not exist.
	CNIConfDir string
	// CNIOnly turns the built-in network off.
	CNIOnly bool
	// PodCIDRs are the ranges of pod addresses in the built-in network, at most one IPv4 and one IPv6 range. If there
	// is none, neither here nor in RangesFile, the network chooses free ranges.
	PodCIDRs []netip.Prefix
	// Fixed keeps PodCIDRs at the start of the agent. Otherwise the ranges in RangesFile replace them.
	Fixed bool
	// RangesFile stores the ranges of the last UpdateRuntimeConfig.
	RangesFile string
	// ChoiceFile stores the ranges that the network has chosen.
	ChoiceFile string
	// Owner describes whose network it is to the agents of other root directories: the agent's root directory.
	Owner string
	// StateDir is the runtime's state directory. The network namespaces of its pods are mounted there.
	StateDir string
	// Leases is the directory with what pods have of the built-in network (package lease).
	Leases string
	// LeaseDir is the directory where the plugin host-local records the addresses in use. The versions before had the
	// built-in network made by CNI plugins.
	LeaseDir string
	// BinDirs are the directories of the CNI plugins.
	BinDirs []string
	// Plugins are the CNI plugins that the runtime brings with it.
	Plugins Plugins
	// Bridge is the name of the built-in network and of its bridge device.
	Bridge string
	// Log is never nil.
	Log *slog.Logger
}

// Plugins are CNI plugins that are installed when they may be used.
type Plugins interface {
	// InstallPlugins installs the plugins, unless they are.
	InstallPlugins() error
}

// Machine describes the machine's features that the built-in network depends on.
type Machine struct {
	IPv6     bool // IPv6 is present and not disabled
	Nftables bool // the kernel has nftables
}

// Network keeps the CNI configuration for containerd in Config.Dir. It is a copy of the machine's CNI configuration if
// there is one, and else the name of the built-in network, which Network makes itself. Pods keep the network that they
// were started with.
type Network struct {
	config  Config
	machine Machine // set by Prepare

	pods     *endpoint.Endpoints
	localnet sync.Mutex // orders changes of route_localnet on the bridge
	overlaps *Overlaps
	// cleaned has the IDs of the stopped sandboxes that ended has cleaned up. It is empty after a restart, so that the
	// agent looks again at each sandbox that its predecessor stopped.
	cleaned sync.Map

	mu     sync.Mutex
	source source // the network whose files are in the directory
}

// New allocates a network. Prepare and Follow do the work.
func New(config Config) *Network {
	pods := endpoint.New(endpoint.Config{Bridge: config.Bridge, Leases: config.Leases, Log: config.Log})
	return &Network{config: config, pods: pods, overlaps: store.New[netip.Prefix, string]()}
}

// Prepare writes the configuration before containerd reads it.
func (n *Network) Prepare(ctx context.Context, m Machine) error {
	n.machine = m
	reportOthers(n.config)
	if err := n.pods.Restore(m.Nftables); err != nil {
		return fmt.Errorf("set up pod network: %w", err)
	}
	n.recallRanges()
	if err := errors.Join(installForAttached(n.config), n.sync(ctx)); err != nil {
		return fmt.Errorf("set up pod network: %w", err)
	}
	return nil
}

// installForAttached installs the CNI plugins if pods of this runtime may be attached to networks of such plugins,
// which detach them. An error of the list is Sweep's to report.
func installForAttached(c Config) error {
	if attached, err := attachments(c); err == nil && len(attached) == 0 {
		return nil
	}
	return c.Plugins.InstallPlugins()
}

// Close waits for what goes on in the background.
func (n *Network) Close() { n.pods.Close() }

// sync reads the machine's configuration and updates containerd's directory to match.
func (n *Network) sync(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.syncLocked(ctx)
}

func (n *Network) syncLocked(ctx context.Context) error {
	files, err := readConfDir(n.config.CNIConfDir)
	if err != nil {
		return err
	}
	from := n.config.source(len(files) > 0)
	switch from {
	case builtIn:
		files, err = n.makeBuiltIn(ctx)
	case machine:
		err = n.config.Plugins.InstallPlugins()
	case noNetwork:
	}
	// Also after an error, so that stale files of the machine's configuration do not stay.
	if err := errors.Join(err, place(n.config.Dir, files)); err != nil {
		return err
	}
	if from != n.source {
		n.source = from
		n.config.Log.Info("network for new pods chosen", "network", from, "dir", n.config.CNIConfDir)
	}
	return nil
}

// makeBuiltIn creates the bridge of the built-in network and returns the network's configuration. The error says why
// this machine cannot have one.
func (n *Network) makeBuiltIn(ctx context.Context) (map[string]confFile, error) {
	if !n.machine.Nftables {
		return nil, errors.New("this kernel has no nftables: load the module nf_tables, or install a CNI configuration")
	}
	unlock, err := lockChoice(ctx, n.config.Log)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := n.chooseRanges(); err != nil {
		return nil, err
	}
	usable := podCIDRs(n.config.PodCIDRs, n.machine.IPv6)
	if len(usable) == 0 {
		return nil,
			fmt.Errorf("IPv6 is disabled on this machine and the pod CIDRs %v have no IPv4 range", n.config.PodCIDRs)
	}
	if len(usable) < len(n.config.PodCIDRs) && n.source != builtIn {
		n.config.Log.Info("IPv6 is disabled on this machine: pods get IPv4 only", "podCIDRs", usable)
	}
	if err := n.makeBridge(usable); err != nil {
		return nil, err
	}
	if n.source != builtIn {
		if err := n.pods.WriteTable(); err != nil {
			return nil, err
		}
	}
	text, err := json.MarshalIndent(networkConfig(n.config, n.machine), "", "  ")
	if err != nil {
		return nil, err
	}
	return map[string]confFile{builtInConf: {text: text}}, nil
}

// Before does the network's part of a CRI call. It runs before containerd serves the call, and returns the context for
// it. After follows each Before that succeeded.
func (n *Network) Before(ctx context.Context, req any) (context.Context, error) {
	switch req := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		ctx = plugin.WithConfig(ctx, req.GetConfig())
	case *runtimeapi.UpdateRuntimeConfigRequest:
		if err := n.useRanges(ctx, req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()); err != nil {
			return ctx, status.Error(codes.InvalidArgument, err.Error())
		}
	case *runtimeapi.StopPodSandboxRequest:
		n.release(ctx, req.GetPodSandboxId())
	case *runtimeapi.RemovePodSandboxRequest:
		n.release(ctx, req.GetPodSandboxId())
	}
	return ctx, nil
}

// After does the rest of the network's part when containerd has served the call. failed says that the call failed.
func (n *Network) After(ctx context.Context, req any, failed bool) {
	switch req := req.(type) {
	case *runtimeapi.StopPodSandboxRequest:
		if !failed {
			n.ended(ctx, req.GetPodSandboxId())
		}
	case *runtimeapi.RemovePodSandboxRequest:
		if !failed {
			if err := n.pods.Await(req.GetPodSandboxId()); err != nil {
				n.cleaned.Delete(req.GetPodSandboxId())
				n.config.Log.Warn("cannot remove the network of a pod, retrying", "sandbox", req.GetPodSandboxId(),
					"err", err)
			}
			n.ended(ctx, req.GetPodSandboxId())
			n.cleaned.Delete(req.GetPodSandboxId())
		}
	}
}

// recallRanges reads the ranges of the last UpdateRuntimeConfig from disk, unless the configuration sets ranges. It
// continues without a damaged file: the next UpdateRuntimeConfig replaces it.
func (n *Network) recallRanges() {
	if n.config.Fixed {
		return
	}
	cidrs, err := readRanges(n.config.RangesFile)
	if err != nil {
		n.config.Log.Error("cannot read the pod address ranges of the cluster, continuing without them until the "+
			"cluster sends them again", "err", err)
		return
	}
	if cidrs != nil {
		n.config.PodCIDRs = cidrs
	}
}

// useRanges changes the built-in network to the ranges of a CRI UpdateRuntimeConfig call, and stores them for the next
// start. New pods get addresses of these ranges. It does not change the network of the machine's CNI
// configuration.
func (n *Network) useRanges(ctx context.Context, text string) error {
	if n.config.CNIOnly || text == "" {
		return nil
	}
	cidrs, err := parseRanges(text)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.source == builtIn && len(podCIDRs(cidrs, n.machine.IPv6)) == 0 {
		return fmt.Errorf("IPv6 is disabled on this machine and the pod CIDRs %v have no IPv4 range", cidrs)
	}
	n.config.PodCIDRs = cidrs
	err = checkpoint.Replace(n.config.RangesFile, []byte(text))
	if err := errors.Join(err, n.syncLocked(ctx)); err != nil {
		return fmt.Errorf("change pod network: %w", err)
	}
	n.config.Log.Info("address ranges of the built-in network changed", "podCIDRs", cidrs)
	return nil
}
