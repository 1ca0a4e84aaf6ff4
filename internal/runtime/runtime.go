package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/berth-run/berth/internal/base/headstart"
	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/base/packetfilter"
	"github.com/berth-run/berth/internal/base/pages"
	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/internal/runtime/assets"
	"github.com/berth-run/berth/internal/runtime/cgroupmount"
	"github.com/berth-run/berth/internal/runtime/command"
	"github.com/berth-run/berth/internal/runtime/handler"
	"github.com/berth-run/berth/internal/runtime/logpath"
	"github.com/berth-run/berth/internal/runtime/network"
	"github.com/berth-run/berth/internal/runtime/network/plugin"
	"github.com/berth-run/berth/internal/runtime/orphan"
	"github.com/berth-run/berth/internal/runtime/pause"
	"github.com/berth-run/berth/internal/runtime/program"
	"github.com/berth-run/berth/internal/runtime/records"
	"github.com/berth-run/berth/internal/runtime/restore"
	"github.com/berth-run/berth/internal/runtime/retries"
	"github.com/berth-run/berth/internal/runtime/sandbox"
	"github.com/berth-run/berth/internal/runtime/tasks"
	"github.com/berth-run/berth/internal/runtime/tempmount"
	"github.com/berth-run/berth/internal/runtime/unpack"
)

// Config configures a runtime: its directories, its pod network and its limits.
type Config struct {
	// Root is the directory of data that outlives a reboot: images, snapshots, container metadata. It is an absolute
	// path.
	Root string
	// State is the directory of data that ends with a reboot: mounts, addresses in use. It is an absolute path,
	// normally on a tmpfs. Sockets are in a directory of their own (unixsocket.Dir of Root).
	State string
	// CNIConfDir is the machine's directory of CNI configuration. While it holds any, pods start on that network
	// instead of the built-in one. The runtime watches it; it need not exist. Default /etc/cni/net.d.
	CNIConfDir string
	// CNIOnly turns the built-in network off. Without a CNI configuration the network is then not ready, and only pods
	// in the host's network start.
	CNIOnly bool
	// NRISocket is the path of the socket where NRI plugins connect. If it is empty, or another runtime listens there,
	// the socket is nri.sock in the directory of sockets.
	NRISocket string
	// NRIOff turns NRI off: there is no socket, and no plugin is started.
	NRIOff bool
	// PodCIDRs are the ranges of pod addresses in the built-in network, at most one IPv4 and one IPv6 range. Default:
	// the ranges of the last UpdateRuntimeConfig, or one free private range of each family.
	PodCIDRs []netip.Prefix
	// Bridge is the name of the built-in network and of its bridge device. Default berth0.
	Bridge string
	// Owner describes whose network it is to the agents of other root directories. Default Root.
	Owner string
	// SystemdCgroup makes runc create cgroups through systemd. Cgroup parents are then slices.
	SystemdCgroup bool
	// Handlers are the runtime handlers beside runc, by name.
	Handlers handler.Handlers
	// RegistryDir holds one directory per registry with its hosts.toml or certificates, like containerd's certs.d
	// (https://github.com/containerd/containerd/blob/main/docs/hosts.md). Empty: no registry has its own settings.
	RegistryDir string
	// LogMaxSize is the size in bytes that a file of a container's log does not exceed, unless a single line does. 0 or
	// less: no limit. LogMaxFiles is the maximum number of files of one log, at least 2.
	LogMaxSize  int64
	LogMaxFiles int
	// StreamAddress is the IP address that serves exec, attach and port-forward, at a free port. Default 127.0.0.1.
	StreamAddress string
	// Unpack limits how much disk space a layer may use once it is unpacked.
	Unpack unpack.Limits
	// Tracer receives the spans of work inside a call, such as the set-up of a pod's network. Only calls that carry a
	// trace over Conn make spans. nil: no spans are made.
	Tracer trace.TracerProvider
	// Log is never nil.
	Log *slog.Logger
}

// Runtime is a containerd inside this process. A process can run only one, and only once.
type Runtime struct {
	config    Config
	network   *network.Network
	sandboxes sandboxes
	headstart *headstart.Headstart

	// ready is closed when up or err is set.
	ready chan struct{}
	once  sync.Once
	up    *server
	conn  *grpc.ClientConn
	err   error
}

// New allocates a runtime; Run starts it.
func New(config Config) *Runtime {
	fixed := len(config.PodCIDRs) > 0
	config = withDefaults(config)
	l := layout{config.Root, config.State}
	boxes := sandboxes{controller: sandbox.ID, shim: l.program(program.Shim)}
	return &Runtime{config: config, ready: make(chan struct{}), sandboxes: boxes, headstart: headstart.New(),
		network: network.New(network.Config{
			Dir: l.cniConf(), CNIConfDir: config.CNIConfDir, CNIOnly: config.CNIOnly, PodCIDRs: config.PodCIDRs,
			Fixed: fixed, RangesFile: l.ranges(), ChoiceFile: l.choice(), Owner: config.Owner, StateDir: config.State,
			Leases: l.leases(), LeaseDir: l.addresses(), BinDirs: l.cniBins(),
			Plugins: l.programs(), Bridge: config.Bridge, Log: config.Log,
		})}
}

func (r *Runtime) layout() layout { return layout{r.config.Root, r.config.State} }

// Run serves until ctx ends, then detaches: containers and shims run on, and a later Run on the same directories, by
// this or a newer binary, finds them. Run returns nil when ctx has ended, and an error if containerd could not start or
// failed.
func (r *Runtime) Run(ctx context.Context) error {
	err := r.run(ctx)
	if err != nil {
		err = fmt.Errorf("run embedded runtime: %w", err)
	}
	ended := err
	if ended == nil {
		ended = errors.New("embedded runtime has ended")
	}
	r.settle(nil, nil, ended)
	return err
}

// settle records the outcome of the start and wakes the callers that wait for it. Only the first call has an effect.
func (r *Runtime) settle(up *server, conn *grpc.ClientConn, err error) {
	r.once.Do(func() {
		r.up, r.conn, r.err = up, conn, err
		close(r.ready)
	})
}

func (r *Runtime) run(ctx context.Context) error {
	if err := validate(r.config); err != nil {
		return err
	}
	root, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer root.Close()
	h, err := r.prepare(ctx)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	forwardLogs(ctx, r.config.Log.With("component", "containerd"), func() {
		select {
		case failed <- errors.New("containerd failed, see its last error in the log"):
		default:
		}
	})
	boxes := r.sandboxes
	if boxes.image == "" && len(r.config.Handlers.Shims()) > 0 {
		sums, err := program.Sums()
		if err != nil {
			return err
		}
		boxes.image = pause.Image(sums[program.Holder])
	}
	kept, err := records.Open(r.layout().records(), r.config.Log)
	if err != nil {
		return err
	}
	defer kept.Close()
	config := serverConfig(r.config, h, boxes, kept.Unsynced())
	unpack.Register(r.config.Unpack, r.config.Root)
	tasks.Register(r.tasks(h))
	up, err := startServer(ctx, config, r.controller(h), kept, h.snapshotter(), failed)
	if err != nil {
		return err
	}
	defer up.stop()
	up.network, up.handlers, up.headstart = r.network, r.config.Handlers, r.headstart
	r.config.Handlers.Warn(r.config.Log)
	if r.sandboxes.shim == r.layout().program(program.Shim) { // else a test runs the shim of the version before
		up.logs = logpath.Paths{CRI: up.cri, Others: r.config.Handlers.Shims()}
	}
	if err := kept.Verify(namespaces.WithNamespace(ctx, criNamespace), up.client, up.images); err != nil {
		return err
	}
	if err := r.placePause(ctx, up, boxes.image); err != nil {
		return err
	}
	defer r.network.Close()
	if err := plugin.Use(up.cri, r.network); err != nil {
		return err
	}
	if err := cgroupmount.Use(up.cri); err != nil {
		return err
	}
	again, err := retries.Of(up.cri, up.stock)
	if err != nil {
		return err
	}
	if err := r.prepareCalls(ctx, up); err != nil {
		return err
	}
	r.sweep(ctx, up, h)
	if err := pages.Drop(); err != nil {
		r.config.Log.Debug("cannot return unused memory to the kernel", "err", err)
	}
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return r.headstart.Run(ctx) })
	parts.Go(func() error { kept.Run(ctx); return nil })
	parts.Go(func() error { again.Run(ctx, up.exits.Ended()); return nil })
	parts.Go(func() error { return r.network.Follow(ctx) })
	parts.Go(func() error { return r.network.Watch(ctx) })
	parts.Go(func() error { return up.attach.Run(ctx) })
	parts.Go(func() error { return r.serve(ctx, up, failed) })
	return parts.Wait()
}

// prepareCalls prepares for the calls that the runtime answers in the place of the CRI plugin.
func (r *Runtime) prepareCalls(ctx context.Context, up *server) (err error) {
	if up.restorer, err = restore.New(up.client, r.layout().checkpoints()); err != nil {
		return err
	}
	if up.commands, err = command.New(up.client, criNamespace, r.layout().commands()); err != nil {
		return err
	}
	return up.attach.Listen(ctx, r.config.streamAddress())
}

// placePause makes the image of pause containers if a handler needs it, and removes those that no pod needs.
func (r *Runtime) placePause(ctx context.Context, up *server, current string) error {
	ctx = namespaces.WithNamespace(ctx, criNamespace)
	images := pause.Images{Client: up.client, Snapshotter: up.snapshotter, Current: current}
	if err := images.Sweep(ctx); err != nil {
		r.config.Log.Warn("cannot remove old images of pause containers, retrying at the next start", "err", err)
	}
	if r.sandboxes.image != "" { // a test imports its own
		return nil
	}
	open := func() (io.ReadCloser, error) { return assets.Open(program.Holder) }
	if err := images.Ensure(ctx, open); err != nil {
		return fmt.Errorf("make the image of pause containers: %w", err)
	}
	return nil
}

// sweep removes the remains of ended sandboxes and containers from the machine. Call it while no sandbox starts.
func (r *Runtime) sweep(ctx context.Context, up *server, h host) {
	if err := r.network.Sweep(ctx, up); err != nil {
		r.config.Log.Warn("cannot remove the networks of ended sandboxes, retrying at the next start", "err", err)
	}
	orphan.Sweep(namespaces.WithNamespace(ctx, criNamespace), orphan.Runtime{
		CRI: up.cri, Client: up.client, Shim: program.Shim, Address: h.address(),
		Holder: r.layout().program(program.Holder), Log: r.config.Log,
	})
}

// serve opens the in-memory connection and keeps it open until ctx ends or containerd fails.
func (r *Runtime) serve(ctx context.Context, up *server, failed <-chan error) error {
	const buffer = 256 << 10
	listener := bufconn.Listen(buffer)
	server, err := up.newGRPC(r.config.Tracer, r.config.Log)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///embedded",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(defaults.DefaultMaxRecvMsgSize),
			grpc.MaxCallSendMsgSize(defaults.DefaultMaxSendMsgSize)))
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	r.settle(up, conn, nil)
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	closing := conn.Close()
	server.end()
	return errors.Join(err, closing, <-served)
}

// lock locks the root directory against other processes. It waits a moment: a process that a killed agent was about to
// start has copies of the agent's locks until it runs its program. The kernel closes them one after the other.
func (r *Runtime) lock(ctx context.Context) (*os.File, error) {
	const inherited = 5 * time.Second
	if err := os.MkdirAll(r.config.Root, 0o700); err != nil {
		return nil, err
	}
	file, err := lock.TryFor(ctx, r.layout().lock(), inherited)
	if errors.Is(err, lock.ErrHeld) {
		return nil, fmt.Errorf("lock %q: another process runs a runtime there: %w", r.config.Root, err)
	}
	return file, err
}

// prepare installs the programs and the network configuration that containerd needs.
func (r *Runtime) prepare(ctx context.Context) (host, error) {
	if err := tempmount.Use(r.config.Root, r.layout().temporary()); err != nil {
		r.config.Log.Warn("cannot remove mounts of an earlier process, retrying at the next start", "err", err)
	}
	h, err := inspectHost(r.layout())
	if err != nil {
		return host{}, err
	}
	if r.config.SystemdCgroup && !h.systemdInit {
		return host{},
			errors.New("the systemd cgroup driver is configured, but systemd does not run here: use cgroupfs")
	}
	if !h.overlay {
		r.config.Log.Warn("overlayfs does not work here: every container gets a full copy of its image", "dir",
			r.config.Root)
	}
	if !h.lowerOOM {
		r.config.Log.Info("no CAP_SYS_RESOURCE: oom_score_adj of containers is never below this process's own")
	}
	if h.sockets, err = unixsocket.MakeDir(r.config.Root); err != nil {
		return host{}, err
	}
	h.nri = r.nriSocket(ctx, h.sockets)
	if err := unixsocket.Sweep(ctx); err != nil {
		r.config.Log.Warn("cannot remove the sockets of a runtime whose directory is gone", "err", err)
	}
	if err := r.layout().programs().Install(); err != nil {
		return host{}, err
	}
	return h, r.network.Prepare(ctx, network.Machine{IPv6: h.ipv6, Nftables: packetfilter.Nftables()})
}

// server returns the running containerd. It waits until the runtime is ready or has failed.
func (r *Runtime) server(ctx context.Context) (*server, error) {
	select {
	case <-r.ready:
		return r.up, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for embedded runtime: %w", context.Cause(ctx))
	}
}

// Conn returns an in-memory connection that serves the CRI and containerd's tasks. It waits until the runtime is
// ready. Calls of the CRI need no containerd namespace. The connection closes when Run returns.
func (r *Runtime) Conn(ctx context.Context) (*grpc.ClientConn, error) {
	if _, err := r.server(ctx); err != nil {
		return nil, err
	}
	return r.conn, nil
}

// Serve serves the CRI to other processes, such as crictl, until ctx ends. It waits until the runtime is ready, and
// closes the listener.
func (r *Runtime) Serve(ctx context.Context, listener net.Listener) error {
	up, err := r.server(ctx)
	if err != nil {
		_ = listener.Close()
		return err
	}
	server, err := up.newGRPC(nil, r.config.Log)
	if err != nil {
		_ = listener.Close()
		return err
	}
	stop := context.AfterFunc(ctx, server.end)
	defer stop()
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve CRI on %s: %w", listener.Addr(), err)
	}
	return nil
}

// Listen opens unix://PATH for Serve. Only root may connect. Listen replaces a socket that an ended process has left.
func Listen(address string) (net.Listener, error) {
	path, ok := strings.CutPrefix(address, "unix://")
	if !ok || !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("listen on %q: want unix:///PATH", address)
	}
	if conn, err := unixsocket.Dial(context.Background(), path); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("listen on %q: another process serves there", address)
	}
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("listen on %q: the file exists and is not a socket", address)
	case err == nil:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen on %q: %w", address, err)
		}
	}
	listener, err := unixsocket.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", address, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("listen on %q: %w", address, err)
	}
	return listener, nil
}

// Overlaps has a row for each range of pods in the built-in network that overlaps with another network of the machine.
func (r *Runtime) Overlaps() *network.Overlaps { return r.network.Overlaps() }

// RemoveNetwork removes the built-in network from the machine, and the rules, addresses and namespaces that pods have
// left on any network. Call it only when no pod is left. The next start makes the network again.
func (r *Runtime) RemoveNetwork(ctx context.Context) error { return r.network.Remove(ctx) }
