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

// inspectHost looks at the machine. The root directory must exist.
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

// mayLowerOOMScore reports CAP_SYS_RESOURCE, see proc_pid_oom_score_adj(5).
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

// packetFilter is the first tool for masquerading and host ports that works here. Bringing a pod up
// takes as long with either; nftables takes it down faster.
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

// podNetwork keeps in a directory of the runtime's own the CNI configuration that
// containerd is to use: the machine's where it has one, else the built-in network's.
// Pods keep the network that they were started with.
type podNetwork struct {
	config Config
	chosen bool // the configuration says the ranges of pod addresses
	host   host // set by prepare

	mu     sync.Mutex
	source source // where the files in the directory are from
}

func (n *podNetwork) layout() layout { return layout{n.config.Root, n.config.State} }

// prepare puts the configuration in place before containerd reads it.
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

// sync looks for the machine's configuration and makes containerd's directory what
// it is to be now.
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
	// Also after an error: what the machine has no more must not stay.
	if err := errors.Join(err, place(n.layout().cniConf(), files)); err != nil {
		return err
	}
	if from != n.source {
		n.source = from
		n.config.Log.Info("The network of pods that start from now on", "is", from, "dir", n.config.CNIConfDir)
	}
	return nil
}

// makeBuiltIn makes the bridge of the built-in network and returns its
// configuration, or says why there can be none.
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

// before does the network's part of a call that containerd is asked for next.
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

// recallRanges takes the ranges that the node was given last, unless the
// configuration says some.
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

// useRanges gives the pods that the built-in network gets from now on addresses of
// the ranges that the cluster has given the node (CRI UpdateRuntimeConfig), also
// after a restart. A network of somebody else's configuration is not touched.
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
	n.config.Log.Info("The ranges of pod addresses in the built-in network are others", "podCIDRs", cidrs)
	return nil
}

// replace writes a file at once: readers see all of it or what was there before.
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
