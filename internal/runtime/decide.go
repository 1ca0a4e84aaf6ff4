package runtime

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	srvconfig "github.com/containerd/containerd/v2/cmd/containerd/server/config"

	"github.com/berth-run/berth/internal/runtime/network"
	"github.com/berth-run/berth/internal/runtime/program"
)

const (
	defaultCNIConfDir = "/etc/cni/net.d"
	defaultBridge     = "berth0"
	// defaultHandler is the default runtime handler (the handler of a RuntimeClass in Kubernetes).
	defaultHandler = "runc"
	// maxBridge is the kernel's limit for the name of a network device (IFNAMSIZ less the final zero).
	maxBridge = 15
)

// metadataPlugin is containerd's plugin with its database. Its directory has the same name.
const metadataPlugin = "io.containerd.metadata.v1.bolt"

// streamAddress is the IP address that serves exec, attach and port-forward.
func (c Config) streamAddress() string { return cmp.Or(c.StreamAddress, "127.0.0.1") }

// layout names the files below Config.Root and Config.State.
type layout struct{ root, state string }

func (l layout) cniBins() []string   { return []string{l.programs().Plugins, "/opt/cni/bin"} }
func (l layout) cniConf() string     { return filepath.Join(l.root, "cni") }
func (l layout) ranges() string      { return filepath.Join(l.root, "pod-cidrs") }
func (l layout) choice() string      { return filepath.Join(l.root, "pod-cidrs-chosen") }
func (l layout) lock() string        { return filepath.Join(l.root, "runtime.lock") }
func (l layout) commands() string    { return filepath.Join(l.state, "exec") }
func (l layout) addresses() string   { return filepath.Join(l.state, "ipam") }
func (l layout) leases() string      { return filepath.Join(l.state, "leases") }
func (l layout) records() string     { return filepath.Join(l.root, metadataPlugin, "meta.db") }
func (l layout) checkpoints() string { return filepath.Join(l.root, "restore") }
func (l layout) temporary() string   { return filepath.Join(l.root, "tmpmounts") }

func (l layout) programs() program.Programs { return program.In(l.root) }

// program is the path of the link to an installed program.
func (l layout) program(name string) string { return l.programs().Path(name) }

// withDefaults returns c with defaults in the network's empty fields.
func withDefaults(c Config) Config {
	c.CNIConfDir = cmp.Or(c.CNIConfDir, defaultCNIConfDir)
	c.Bridge = cmp.Or(c.Bridge, defaultBridge)
	c.Owner = cmp.Or(c.Owner, c.Root)
	return c
}

// validate reports the first setting that the runtime cannot work with.
func validate(c Config) error {
	for _, dir := range []struct{ name, path string }{{"root", c.Root}, {"state", c.State}} {
		if !filepath.IsAbs(dir.path) {
			return fmt.Errorf("runtime %s directory %q is not an absolute path", dir.name, dir.path)
		}
	}
	if filepath.Clean(c.Root) == filepath.Clean(c.State) {
		return fmt.Errorf("runtime root and state are the same directory %q", c.Root)
	}
	if len(c.Bridge) > maxBridge || strings.ContainsAny(c.Bridge, "/ :") {
		return fmt.Errorf("bridge name %q is not a device name of at most %d bytes", c.Bridge, maxBridge)
	}
	return network.ValidateRanges(c.PodCIDRs)
}

// host describes the machine's features that the configuration depends on.
type host struct {
	sockets     string // the directory for sockets
	nri         string // the socket for NRI plugins
	ipv6        bool   // IPv6 is present and not disabled
	overlay     bool   // overlayfs works on the root directory
	lowerOOM    bool   // this process has CAP_SYS_RESOURCE and may lower oom_score_adj
	oomFloor    int    // the lowest oom_score_adj that this process may set
	systemdInit bool   // systemd runs
}

// address is the name of this containerd in the arguments of its shims. It is a path without a socket.
func (h host) address() string { return filepath.Join(h.sockets, "grpc.sock") }

// events is the socket where shims publish their events to containerd.
func (h host) events() string { return filepath.Join(h.sockets, "ttrpc.sock") }

// shim is the socket of the shim, which serves version taskVersion of containerd's task API.
func (h host) shim() string { return filepath.Join(h.sockets, "shim.sock") }

const taskVersion = 3

// snapshotter is the containerd snapshotter for this machine.
func (h host) snapshotter() string {
	if h.overlay {
		return "overlayfs"
	}
	return "native"
}

// serverConfig returns containerd's configuration. It has the keys of containerd's TOML file, version 4.
func serverConfig(c Config, h host, boxes sandboxes, unsynced bool) *srvconfig.Config {
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
		// At the start of this process containerd kills shims and tasks that do not answer within these limits. They
		// are long, so that a busy machine loses no container. The CRI plugin allows 10 s per container.
		Timeouts: map[string]string{"io.containerd.timeout.shim.load": "1m", "io.containerd.timeout.task.state": "10s"},
		Plugins: map[string]any{
			"io.containerd.server.v1.ttrpc": map[string]any{"address": h.events()},
			"io.containerd.server.v1.grpc":  map[string]any{"address": h.address()},
			"io.containerd.shim.v1.manager": map[string]any{"socket_dir": filepath.Join(h.sockets, "s")},
			// Programs in /opt/nri/plugins are started with the runtime, with their configuration from /etc/nri/conf.d.
			"io.containerd.nri.v1.nri": map[string]any{"disable": c.NRIOff, "socket_path": h.nri},
			// Package records makes them survive a loss of power.
			metadataPlugin: map[string]any{"no_sync": unsynced},
			"io.containerd.cri.v1.images": map[string]any{
				"snapshotter":   snapshotter,
				"pinned_images": map[string]any{"sandbox": boxes.image},
				"registry":      map[string]any{"config_path": c.RegistryDir},
				// Seconds between walks over all snapshots to measure their size. LayerUsage does not need them.
				"stats_collect_period": 300,
			},
			"io.containerd.transfer.v1.local": map[string]any{
				"unpack_config": []any{map[string]any{"platform": "linux", "snapshotter": snapshotter}},
			},
			"io.containerd.grpc.v1.cri": map[string]any{
				"disable_tcp_service":   true,
				"stream_server_address": c.streamAddress(),
				"stream_server_port":    "0",
			},
			"io.containerd.cri.v1.runtime": map[string]any{
				"restrict_oom_score_adj":              !h.lowerOOM,
				"tolerate_missing_hugetlb_controller": true,
				"disable_hugetlb_controller":          false, // so that containers get limits, not only their pods
				"netns_mounts_under_state_dir":        true,
				// By default the collector for UsageNanoCores queries every shim every second. The agent does not need
				// it: it computes rates from the cumulative counters.
				"stats_collect_period": "8760h",
				"containerd": map[string]any{
					"default_runtime_name": defaultHandler,
					"runtimes":             runtimes(c, boxes),
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
