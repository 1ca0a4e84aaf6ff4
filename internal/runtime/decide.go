package runtime

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	srvconfig "github.com/containerd/containerd/v2/cmd/containerd/server/config"
)

const (
	defaultCNIConfDir = "/etc/cni/net.d"
	defaultBridge     = "berth0"
	// builtInConf is the file of the built-in network.
	builtInConf = "10-berth.conflist"
	// handler is the name of the only runtime handler (RuntimeClass handler in Kubernetes).
	handler = "runc"
	// maxState keeps the shims' sockets, State/s/SHA256, within the 107 bytes of a unix socket's path.
	maxState = 107 - len("/s/") - 64
	// maxBridge is the kernel's limit for the name of a network device (IFNAMSIZ less the final zero).
	maxBridge = 15
)

// layout says where things are below the two directories.
type layout struct{ root, state string }

func (l layout) bin() string       { return filepath.Join(l.root, "bin") }
func (l layout) cniBin() string    { return filepath.Join(l.bin(), "cni") }
func (l layout) cniBins() []string { return []string{l.cniBin(), "/opt/cni/bin"} }
func (l layout) cniConf() string   { return filepath.Join(l.root, "cni") }
func (l layout) ranges() string    { return filepath.Join(l.root, "pod-cidrs") }
func (l layout) lock() string      { return filepath.Join(l.root, "runtime.lock") }
func (l layout) addresses() string { return filepath.Join(l.state, "ipam") }

// program is the path by which an installed program is called.
func (l layout) program(name string) string {
	for _, plugin := range cniPlugins {
		if name == plugin {
			return filepath.Join(l.cniBin(), name)
		}
	}
	return filepath.Join(l.bin(), name)
}

// withDefaults fills what the user left out.
func withDefaults(c Config) Config {
	if c.CNIConfDir == "" {
		c.CNIConfDir = defaultCNIConfDir
	}
	if c.Bridge == "" {
		c.Bridge = defaultBridge
	}
	if len(c.PodCIDRs) == 0 {
		c.PodCIDRs = []netip.Prefix{
			netip.MustParsePrefix("10.201.0.0/16"),
			// A unique local range (RFC 4193) of Berth's own.
			netip.MustParsePrefix("fd62:6572:7468::/64"),
		}
	}
	return c
}

// validate finds what cannot work.
func validate(c Config) error {
	for _, dir := range []struct{ name, path string }{{"root", c.Root}, {"state", c.State}} {
		if !filepath.IsAbs(dir.path) {
			return fmt.Errorf("runtime %s directory %q is not an absolute path", dir.name, dir.path)
		}
	}
	if filepath.Clean(c.Root) == filepath.Clean(c.State) {
		return fmt.Errorf("runtime root and state are the same directory %q", c.Root)
	}
	if len(c.State) > maxState {
		return fmt.Errorf(
			"runtime state directory %q is longer than %d bytes: sockets below it would exceed the kernel's limit",
			c.State, maxState)
	}
	if len(c.Bridge) > maxBridge || strings.ContainsAny(c.Bridge, "/ :") {
		return fmt.Errorf("bridge name %q is not a device name of at most %d bytes", c.Bridge, maxBridge)
	}
	return validRanges(c.PodCIDRs)
}

// parseRanges reads ranges as UpdateRuntimeConfig has them: CIDR[,CIDR].
func parseRanges(text string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		cidr, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("pod CIDR %q: %w", part, err)
		}
		all = append(all, cidr)
	}
	return all, validRanges(all)
}

func validRanges(cidrs []netip.Prefix) error {
	var v4, v6 int
	for _, cidr := range cidrs {
		switch {
		case !cidr.IsValid():
			return fmt.Errorf("pod CIDR %s is not valid", cidr)
		case cidr != cidr.Masked():
			return fmt.Errorf("pod CIDR %s has host bits set, use %s", cidr, cidr.Masked())
		case cidr.Addr().Is4():
			v4++
		default:
			v6++
		}
	}
	if v4 > 1 || v6 > 1 {
		return fmt.Errorf("pod CIDRs %v: at most one IPv4 and one IPv6 range", cidrs)
	}
	return nil
}

// grown says whether a layer may have unpacked to so much out of so much input.
func (u Unpacking) grown(in, out int64) error {
	if out > u.Harmless && out/u.MaxRatio > in {
		return fmt.Errorf("%w: it unpacks to more than %d times its size, and more than %d bytes", errTooLarge,
			u.MaxRatio, u.Harmless)
	}
	return nil
}

// room says whether the disk may take more.
func (u Unpacking) room(s space) error {
	const part, most = 20, 1 << 30
	reserve := u.Reserve
	if reserve == 0 {
		reserve = min(s.Size/part, most)
	}
	if s.Free < reserve {
		return fmt.Errorf("%w: only %d bytes are free on the disk, and %d are kept so", errTooLarge, s.Free, reserve)
	}
	if s.Inodes > 0 && s.InodeFree < s.Inodes/part {
		return fmt.Errorf("%w: only %d inodes are free on the disk, and %d are kept so", errTooLarge, s.InodeFree,
			s.Inodes/part)
	}
	return nil
}

// host is what the decisions need to know about the machine.
type host struct {
	ipv6        bool   // IPv6 is present and not disabled
	overlay     bool   // overlayfs works on the root directory
	lowerOOM    bool   // CAP_SYS_RESOURCE: oom_score_adj may be lowered
	filter      string // "nftables" or "iptables", empty when there is neither
	systemdInit bool   // systemd runs
}

// snapshotter is the containerd snapshotter for this machine.
func (h host) snapshotter() string {
	if h.overlay {
		return "overlayfs"
	}
	return "native"
}

// source is where the network of pods that start now is from.
type source string

const (
	machine source = "the machine's CNI configuration"
	builtIn source = "the built-in one"
	nobody  source = "none, until there is a CNI configuration"
)

// source is what the network is to be from.
func (c Config) source(configured bool) source {
	switch {
	case configured:
		return machine
	case c.CNIOnly:
		return nobody
	}
	return builtIn
}

// podCIDRs is the ranges of the families that the machine has.
func podCIDRs(cidrs []netip.Prefix, ipv6 bool) []netip.Prefix {
	var usable []netip.Prefix
	for _, cidr := range cidrs {
		if ipv6 || cidr.Addr().Is4() {
			usable = append(usable, cidr)
		}
	}
	return usable
}

// gateways says how a bridge with these addresses of one family comes to have the
// gateway of a range as the first in the kernel's list, where it is not the only one:
// what is to be removed, and then added in this order. Addresses of other ranges stay
// as long as pods have leases there. A bridge without addresses is left as it is.
func gateways(present []netip.Prefix, r netip.Prefix, leases []netip.Addr) (remove, add []netip.Prefix) {
	want := netip.PrefixFrom(r.Addr().Next(), r.Bits())
	if len(present) == 0 || slices.Equal(present, []netip.Prefix{want}) {
		return nil, nil
	}
	var used []netip.Prefix
	for _, p := range present {
		if p != want && slices.ContainsFunc(leases, p.Masked().Contains) {
			used = append(used, p)
		}
	}
	if present[0] == want && len(used) == len(present)-1 {
		return nil, nil
	}
	if r.Addr().Is6() { // there the kernel lists the newest first
		slices.Reverse(used)
		return present, append(used, want)
	}
	return present, append([]netip.Prefix{want}, used...)
}

// isConf says whether containerd takes a file of this name for CNI configuration.
func isConf(name string) bool {
	return slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name))
}

// concerns says whether what happened to a path may change what a directory has.
func concerns(path, dir string) bool {
	return path == dir || filepath.Dir(path) == dir || strings.HasPrefix(dir, strings.TrimSuffix(path, "/")+"/")
}

// networkConfig is the CNI configuration list of the built-in network: a bridge with addresses from
// the node's own ranges, masquerading to the outside, and host ports. Addresses in use are kept in
// the state directory, since none outlives a reboot.
// https://github.com/containernetworking/cni/blob/spec-v1.1.0/SPEC.md
func networkConfig(c Config, h host) map[string]any {
	var ranges, routes []any
	for _, cidr := range podCIDRs(c.PodCIDRs, h.ipv6) {
		everywhere := "0.0.0.0/0"
		if cidr.Addr().Is6() {
			everywhere = "::/0"
		}
		ranges = append(ranges, []any{map[string]any{"subnet": cidr.String()}})
		routes = append(routes, map[string]any{"dst": everywhere})
	}
	return map[string]any{
		"cniVersion": "1.0.0",
		"name":       c.Bridge,
		"plugins": []any{
			map[string]any{
				"type":          "bridge",
				"bridge":        c.Bridge,
				"isGateway":     true,
				"ipMasq":        true,
				"ipMasqBackend": h.filter,
				"hairpinMode":   true,
				"ipam": map[string]any{
					"type":    "host-local",
					"dataDir": layout{c.Root, c.State}.addresses(),
					"ranges":  ranges,
					"routes":  routes,
				},
			},
			map[string]any{
				"type":         "portmap",
				"backend":      h.filter,
				"snat":         true,
				"capabilities": map[string]any{"portMappings": true},
			},
		},
	}
}

// serverConfig is containerd's configuration. Keys are those of containerd's TOML file, version 4.
func serverConfig(c Config, h host, pauseImage string) *srvconfig.Config {
	l := layout{c.Root, c.State}
	snapshotter := h.snapshotter()
	return &srvconfig.Config{
		Version: 4,
		Root:    l.root,
		State:   l.state,
		RequiredPlugins: []string{
			"io.containerd.grpc.v1.cri",
			"io.containerd.server.v1.ttrpc",
			inProcessURI,
		},
		// What does not answer within these limits when this process starts is killed: a machine that has
		// other work to do for a while must lose nothing. The CRI plugin gives a container 10 s in all.
		Timeouts: map[string]string{"io.containerd.timeout.shim.load": "1m", "io.containerd.timeout.task.state": "10s"},
		Plugins: map[string]any{
			"io.containerd.server.v1.ttrpc": map[string]any{"address": filepath.Join(l.state, "ttrpc.sock")},
			// Nobody listens there: shims take it as the name of their containerd.
			"io.containerd.server.v1.grpc":  map[string]any{"address": filepath.Join(l.state, "grpc.sock")},
			"io.containerd.shim.v1.manager": map[string]any{"socket_dir": filepath.Join(l.state, "s")},
			// With the threshold, collections are 10 s apart or more instead of 250 ms. One also follows each
			// removal of an image.
			"io.containerd.gc.v1.scheduler": map[string]any{"startup_delay": "5s", "pause_threshold": 0.0005},
			"io.containerd.cri.v1.images": map[string]any{
				"snapshotter":   snapshotter,
				"pinned_images": map[string]any{"sandbox": pauseImage},
				"registry":      map[string]any{"config_path": c.RegistryDir},
				// Seconds between walks over all snapshots to measure their size.
				"stats_collect_period": 60,
			},
			"io.containerd.transfer.v1.local": map[string]any{
				"unpack_config": []any{map[string]any{"platform": "linux", "snapshotter": snapshotter}},
			},
			"io.containerd.grpc.v1.cri": map[string]any{
				"disable_tcp_service":   true,
				"stream_server_address": "127.0.0.1",
				"stream_server_port":    "0",
			},
			"io.containerd.cri.v1.runtime": map[string]any{
				"restrict_oom_score_adj":              !h.lowerOOM,
				"tolerate_missing_hugetlb_controller": true,
				"disable_hugetlb_controller":          false, // the limits of containers, not just of their pods
				"netns_mounts_under_state_dir":        true,
				// The collector for UsageNanoCores asks every shim every second by default. Whoever wants a
				// rate computes it from the cumulative counters.
				"stats_collect_period": "8760h",
				"containerd": map[string]any{
					"default_runtime_name": handler,
					"runtimes": map[string]any{handler: map[string]any{
						"runtime_type":             "io.containerd.runc.v2",
						"runtime_path":             l.program(shimName),
						"sandboxer":                "podsandbox",
						"disable_pause_image_pull": true,
						"options": map[string]any{
							"BinaryName":    l.program("runc"),
							"SystemdCgroup": c.SystemdCgroup,
						},
					}},
				},
				"cni": map[string]any{
					"bin_dirs":              l.cniBins(),
					"conf_dir":              l.cniConf(),
					"use_internal_loopback": true,
				},
			},
		},
	}
}
