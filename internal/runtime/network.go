package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"
)

// inspectHost finds the machine's features. The root directory must exist.
func inspectHost(ctx context.Context, c Config) (host, error) {
	lower, err := mayLowerOOMScore()
	if err != nil {
		return host{}, err
	}
	return host{
		ipv6:        ipv6Enabled(),
		overlay:     overlayutils.Supported(c.Root) == nil,
		lowerOOM:    lower,
		filter:      packetFilter(ctx),
		systemdInit: exists("/run/systemd/system"),
	}, nil
}

// mayLowerOOMScore reports whether this process has CAP_SYS_RESOURCE, see proc_pid_oom_score_adj(5).
func mayLowerOOMScore() (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("read own capabilities: %w", err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0, nil
}

// ipv6Enabled reports whether new devices get IPv6.
func ipv6Enabled() bool {
	disabled, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	return err == nil && strings.TrimSpace(string(disabled)) == "0"
}

// packetFilter returns the first tool for masquerading and host ports that works on this machine. Starting a pod takes
// as long with either tool; stopping it is faster with nftables.
func packetFilter(ctx context.Context) string {
	if exec.CommandContext(ctx, "nft", "list", "tables").Run() == nil {
		return "nftables"
	}
	if exec.CommandContext(ctx, "iptables", "-w", "-t", "nat", "-S").Run() == nil {
		return "iptables"
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// podNetwork keeps the CNI configuration for containerd in a directory of the runtime. It is a copy of the machine's
// CNI configuration if there is one, and else the built-in network's. Pods keep the network that they were started
// with.
type podNetwork struct {
	config Config
	chosen bool // the configuration sets the ranges of pod addresses
	host   host // set by prepare

	mu     sync.Mutex
	source source // the network whose files are in the directory
}

func (n *podNetwork) layout() layout { return layout{n.config.Root, n.config.State} }

// prepare writes the configuration before containerd reads it.
func (n *podNetwork) prepare(h host) error {
	n.host = h
	err := n.recallRanges()
	if err == nil {
		err = n.sync()
	}
	if err != nil {
		return fmt.Errorf("set up pod network: %w", err)
	}
	return nil
}

// sync reads the machine's configuration and updates containerd's directory to match.
func (n *podNetwork) sync() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.syncLocked()
}

func (n *podNetwork) syncLocked() error {
	files, err := readConfDir(n.config.CNIConfDir)
	if err != nil {
		return err
	}
	from := n.config.source(len(files) > 0)
	if from == builtIn {
		files, err = n.makeBuiltIn()
	}
	// Also after an error, so that stale files of the machine's configuration do not stay.
	if err := errors.Join(err, place(n.layout().cniConf(), files)); err != nil {
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
func (n *podNetwork) makeBuiltIn() (map[string]confFile, error) {
	if n.host.filter == "" {
		return nil, errors.New("neither nft nor iptables works here: install the package nftables or iptables")
	}
	usable := podCIDRs(n.config.PodCIDRs, n.host.ipv6)
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
	text, err := json.MarshalIndent(networkConfig(n.config, n.host), "", "  ")
	if err != nil {
		return nil, err
	}
	return map[string]confFile{builtInConf: {text: text}}, nil
}

// before does the network's part of a CRI call. It runs before containerd serves the call.
func (n *podNetwork) before(ctx context.Context, req any) error {
	switch req := req.(type) {
	case *runtimeapi.UpdateRuntimeConfigRequest:
		if err := n.useRanges(req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
	case *runtimeapi.StopPodSandboxRequest:
		n.release(ctx, req.GetPodSandboxId())
	case *runtimeapi.RemovePodSandboxRequest:
		n.release(ctx, req.GetPodSandboxId())
	}
	return nil
}

// recallRanges reads the ranges of the last UpdateRuntimeConfig from disk, unless the configuration sets ranges.
func (n *podNetwork) recallRanges() error {
	text, err := os.ReadFile(n.layout().ranges())
	if n.chosen || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	cidrs, err := parseRanges(string(text))
	if err != nil {
		return fmt.Errorf("read %s: %w", n.layout().ranges(), err)
	}
	n.config.PodCIDRs = cidrs
	return nil
}

// useRanges changes the ranges of the built-in network to those of a CRI UpdateRuntimeConfig call, and stores them for
// the next start. New pods get addresses of these ranges. It does not change the network of the machine's CNI
// configuration.
func (n *podNetwork) useRanges(text string) error {
	if n.config.CNIOnly || text == "" {
		return nil
	}
	cidrs, err := parseRanges(text)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.source == builtIn && len(podCIDRs(cidrs, n.host.ipv6)) == 0 {
		return fmt.Errorf("IPv6 is disabled on this machine and the pod CIDRs %v have no IPv4 range", cidrs)
	}
	n.config.PodCIDRs = cidrs
	if err := errors.Join(replace(n.layout().ranges(), []byte(text)), n.syncLocked()); err != nil {
		return fmt.Errorf("change pod network: %w", err)
	}
	n.config.Log.Info("address ranges of the built-in network changed", "podCIDRs", cidrs)
	return nil
}

// replace writes a file atomically: a reader sees either the old or the new content.
func replace(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	next := path + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}
