package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"
)

// inspectHost looks at the machine. The root directory must exist.
func inspectHost(ctx context.Context, c Config) (host, error) {
	foreign, err := hasCNIConfig(c.CNIConfDir)
	if err != nil {
		return host{}, err
	}
	lower, err := mayLowerOOMScore()
	if err != nil {
		return host{}, err
	}
	return host{
		ipv6:        ipv6Enabled(),
		overlay:     overlayutils.Supported(c.Root) == nil,
		lowerOOM:    lower,
		filter:      packetFilter(ctx),
		foreignCNI:  foreign,
		systemdInit: exists("/run/systemd/system"),
	}, nil
}

// hasCNIConfig reports whether dir holds a file that the CRI plugin would load.
func hasCNIConfig(dir string) (bool, error) {
	for _, pattern := range []string{"*.conf", "*.conflist", "*.json"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return false, fmt.Errorf("look for CNI configuration in %q: %w", dir, err)
		}
		if len(files) > 0 {
			return true, nil
		}
	}
	return false, nil
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

// prepareNetwork writes the built-in network's configuration, or says why there is none.
func (r *Runtime) prepareNetwork(h host) error {
	if h.foreignCNI {
		r.config.Log.Info("pod network is the machine's own CNI configuration", "dir", r.config.CNIConfDir)
		return nil
	}
	if h.filter == "" {
		return errors.New("set up pod network: neither nft nor iptables works here: install the package nftables or iptables")
	}
	if err := r.recallRanges(); err != nil {
		return fmt.Errorf("set up pod network: %w", err)
	}
	usable := podCIDRs(r.config.PodCIDRs, h.ipv6)
	if len(usable) == 0 {
		return fmt.Errorf("set up pod network: IPv6 is disabled on this machine and the pod CIDRs %v have no IPv4 range", r.config.PodCIDRs)
	}
	if len(usable) < len(r.config.PodCIDRs) {
		r.config.Log.Info("IPv6 is disabled on this machine: pods get IPv4 only", "podCIDRs", usable)
	}
	if err := r.makeBridge(h.ipv6); err != nil {
		return fmt.Errorf("set up pod network: %w", err)
	}
	if err := r.writeNetwork(h, r.config.PodCIDRs); err != nil {
		return fmt.Errorf("set up pod network: %w", err)
	}
	r.builtIn = &h
	return nil
}

// writeNetwork puts the configuration in its place at once: containerd reads it when
// it changes.
func (r *Runtime) writeNetwork(h host, cidrs []netip.Prefix) error {
	c := r.config
	c.PodCIDRs = cidrs
	text, err := json.MarshalIndent(networkConfig(c, h), "", "  ")
	if err != nil {
		return err
	}
	return replace(r.layout().network(), text)
}

func replace(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	next := path + ".next"
	if err := os.WriteFile(next, text, 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// recallRanges takes the ranges that the node was given last, unless the
// configuration says some.
func (r *Runtime) recallRanges() error {
	text, err := os.ReadFile(r.layout().ranges())
	if r.chosen || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	cidrs, err := parseRanges(string(text))
	if err != nil {
		return fmt.Errorf("read %s: %w", r.layout().ranges(), err)
	}
	r.config.PodCIDRs = cidrs
	return nil
}

// useRanges gives the pods that start from now on addresses of the ranges that the
// cluster has given the node (CRI UpdateRuntimeConfig), also after a restart. A
// network of somebody else's configuration is not touched.
func (r *Runtime) useRanges(text string) error {
	if r.builtIn == nil || text == "" {
		return nil
	}
	cidrs, err := parseRanges(text)
	if err != nil {
		return err
	}
	if len(podCIDRs(cidrs, r.builtIn.ipv6)) == 0 {
		return fmt.Errorf("IPv6 is disabled on this machine and the pod CIDRs %v have no IPv4 range", cidrs)
	}
	r.ranging.Lock()
	defer r.ranging.Unlock()
	if err := errors.Join(r.writeNetwork(*r.builtIn, cidrs), replace(r.layout().ranges(), []byte(text))); err != nil {
		return fmt.Errorf("change pod network: %w", err)
	}
	r.config.Log.Info("The ranges of pod addresses are others", "podCIDRs", cidrs)
	return nil
}

// makeBridge makes the bridge before the CNI plugin does. The gateway's IPv6 address could
// else not be used for the first second of the first pod: the kernel would look for others that
// have it (duplicate address detection, RFC 4862), which nobody can on a bridge of this node's pods.
func (r *Runtime) makeBridge(ipv6 bool) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = r.config.Bridge
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make bridge %q: %w", attrs.Name, err)
	}
	if !ipv6 {
		return nil
	}
	if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", attrs.Name, "accept_dad"), []byte("0"), 0); err != nil {
		r.config.Log.Warn("The gateway's IPv6 address is usable only a second after the first pod's start", "err", err)
	}
	return nil
}

// RemoveNetwork removes the bridge of the built-in network. Call it only when no pod is left; the
// next pod makes it anew.
func (r *Runtime) RemoveNetwork() error {
	link, err := netlink.LinkByName(r.config.Bridge)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove bridge %q: %w", r.config.Bridge, err)
	}
	if link.Type() != "bridge" {
		return fmt.Errorf("remove bridge %q: it is a %s", r.config.Bridge, link.Type())
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("remove bridge %q: %w", r.config.Bridge, err)
	}
	return nil
}
