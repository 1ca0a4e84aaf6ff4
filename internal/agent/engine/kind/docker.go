package kind

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/base/packetfilter"
	"github.com/berth-run/berth/internal/config"
	inprocess "github.com/berth-run/berth/internal/config/embedded"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/docker/dockershim"
	podnet "github.com/berth-run/berth/internal/docker/dockershim/network"
	"github.com/berth-run/berth/internal/runtime"
	"github.com/berth-run/berth/internal/runtime/assets"
	"github.com/berth-run/berth/internal/runtime/network"
	"github.com/berth-run/berth/internal/runtime/network/plugin"
)

// docker is a Docker Engine: the shim in this process translates the CRI to the Engine API.
type docker struct {
	choice  endpoint.Choice
	config  *config.Config
	log     *slog.Logger
	network *network.Network
	bridge  string
	shim    *dockershim.Server // after Connect
	dirs    dockerDirs
}

// dockerDirs are directories of the agent's.
type dockerDirs struct{ root, state string }

func newDocker(choice endpoint.Choice, c *config.Config, log *slog.Logger) *docker {
	d := &docker{choice: choice, config: c, log: log.With("part", "docker"),
		dirs: dockerDirs{filepath.Join(c.RootDir, "docker"), filepath.Join(c.RunDir, "docker")}}
	net := d.networkConfig()
	d.network, d.bridge = network.New(net), net.Bridge
	return d
}

// networkConfig configures the built-in network for the pods of a Docker Engine.
func (d *docker) networkConfig() network.Config {
	c, root, state := d.config, d.dirs.root, d.dirs.state
	n := network.Config{
		Dir: filepath.Join(root, "cni"), CNIConfDir: c.Runtime.Embedded.CNIConfDir,
		CNIOnly:  c.Runtime.Embedded.PodNetwork == inprocess.NetworkCNI,
		PodCIDRs: c.Runtime.PodCIDRs, Fixed: len(c.Runtime.PodCIDRs) > 0,
		Owner:      c.RootDir,
		RangesFile: filepath.Join(root, "pod-cidrs"), ChoiceFile: filepath.Join(root, "pod-cidrs-chosen"),
		StateDir: state, Leases: filepath.Join(state, "leases"), LeaseDir: filepath.Join(state, "ipam"),
		BinDirs: []string{pluginDir}, Bridge: "berth0", Log: d.log,
	}
	if n.CNIConfDir == "" {
		n.CNIConfDir = "/etc/cni/net.d"
	}
	if id := c.Instance(); id != "" {
		n.Bridge = "berth-" + id
	}
	return n
}

// pluginDir is where network plugins are installed.
const pluginDir = "/opt/cni/bin"

// cniCaches are libcni's cache and cri-dockerd's.
var cniCaches = []string{"/var/lib/cni", "/var/lib/cni/cache"}

// Connect implements Runtime: it starts the shim. The Engine may come up later than the agent.
func (d *docker) Connect(ctx context.Context, launch engine.Launch, o cri.Options) (*cri.Client, error) {
	others := d.config.Runtime.Embedded
	others.CRIListen, others.CNIConfDir, others.PodNetwork = "", "", ""
	if flag := others.Given(); flag != "" {
		return nil, fmt.Errorf("%s is about the embedded runtime, but the runtime is %s (%s): leave it out", flag,
			d.choice.Endpoint, d.choice.Reason)
	}
	for _, dir := range []string{d.dirs.root, d.dirs.state} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	program, err := assets.Holder()
	if err != nil {
		return nil, err
	}
	if err := d.network.Prepare(ctx, network.Machine{IPv6: ipv6(), Nftables: packetfilter.Nftables()}); err != nil {
		return nil, err
	}
	d.shim, err = dockershim.Open(ctx, dockershim.Config{
		Endpoint: d.choice.Endpoint, PauseProgram: program, Log: d.log,
		StreamAddress: netip.AddrPortFrom(d.config.StreamAddress(), 0).String(),
		Network: podnet.Config{ConfDir: filepath.Join(d.dirs.root, "cni"), BinDirs: []string{pluginDir},
			CacheDirs: cniCaches, NamespaceDir: filepath.Join(d.dirs.state, "pods", "netns"),
			BuiltIn: builtIn{d.network, d.bridge}, Log: d.log},
	})
	if err != nil {
		return nil, err
	}
	const buffer = 256 << 10
	listener := bufconn.Listen(buffer)
	listeners := []net.Listener{listener}
	if address := d.config.Runtime.Embedded.CRIListen; address != "" {
		more, err := runtime.Listen(address)
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, more)
	}
	launch(func(ctx context.Context) error { return d.run(ctx, listeners...) })
	conn, err := grpc.NewClient("passthrough:///docker",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("connect to the shim of Docker: %w", err)
	}
	return cri.NewFromConn(d.choice.Endpoint, conn, o)
}

// maxMessage is the largest answer in bytes, as in the kubelet.
const maxMessage = 16 << 20

// run runs the shim and the built-in network until ctx ends.
func (d *docker) run(ctx context.Context, listeners ...net.Listener) error {
	parts, ctx := errgroup.WithContext(ctx)
	defer d.network.Close()
	parts.Go(func() error { return d.shim.Run(ctx) })
	for _, l := range listeners {
		parts.Go(func() error { return d.shim.Serve(ctx, l) })
	}
	parts.Go(func() error { return d.network.Follow(ctx) })
	parts.Go(func() error { return d.network.Watch(ctx) })
	return parts.Wait()
}

// errNotConnected is the error of a command that does not start the runtime.
var errNotConnected = errors.New("the agent does not run, and so neither does the shim for Docker")

// Import implements Runtime.
func (d *docker) Import(ctx context.Context, archive io.Reader) ([]string, error) {
	if d.shim == nil {
		return nil, errNotConnected
	}
	return d.shim.Import(ctx, archive)
}

// Export implements Runtime.
func (d *docker) Export(ctx context.Context, archive io.Writer, names ...string) error {
	if d.shim == nil {
		return errNotConnected
	}
	return d.shim.Export(ctx, archive, names...)
}

// Progress implements Runtime.
func (d *docker) Progress() engine.Progress { return d }

// PullProgress implements engine.Progress.
func (d *docker) PullProgress(image string) (fetched, total, unpacked int64) {
	if d.shim == nil {
		return 0, 0, 0
	}
	return d.shim.PullProgress(image)
}

// Layers implements Runtime: the shim measures them itself.
func (*docker) Layers() engine.Layers { return nil }

// Overlaps implements Runtime.
func (d *docker) Overlaps() *network.Overlaps { return d.network.Overlaps() }

// RemoveNetwork implements Runtime.
func (d *docker) RemoveNetwork(ctx context.Context) error { return d.network.Remove(ctx) }

// builtIn is the built-in network as the shim calls it.
type builtIn struct {
	*network.Network
	bridge string
}

// Bridge is the name of the bridge of pods.
func (b builtIn) Bridge() string { return b.bridge }

// Type is the type of the plugin that stands for it.
func (builtIn) Type() string { return plugin.Type }

// UseRanges changes the ranges of new pods.
func (b builtIn) UseRanges(ctx context.Context, cidrs string) error {
	_, err := b.Before(ctx, &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: &runtimeapi.RuntimeConfig{
		NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidrs}}})
	return err
}

// Detach detaches a sandbox, and waits until its devices are gone.
func (b builtIn) Detach(ctx context.Context, id string) (leased bool, err error) {
	leased, err = b.Network.Detach(id)
	if leased && err == nil {
		b.After(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}, false)
	}
	return leased, err
}

// Sweep removes the networks of sandboxes that are not in live.
func (b builtIn) Sweep(ctx context.Context, live map[string]string) error {
	return b.Network.Sweep(ctx, boxes(live))
}

// boxes has the namespaces of sandboxes by ID. It implements network.Sandboxes.
type boxes map[string]string

// Sandboxes returns the IDs.
func (b boxes) Sandboxes(context.Context) ([]string, error) { return slices.Collect(maps.Keys(b)), nil }

// Namespace returns the namespace of a sandbox.
func (b boxes) Namespace(_ context.Context, id string) (string, error) { return b[id], nil }

// ipv6 reports whether new devices get IPv6.
func ipv6() bool {
	disabled, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	return err == nil && strings.TrimSpace(string(disabled)) == "0"
}
