package dockershim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/librarylog"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/process"
	"github.com/berth-run/berth/internal/docker/dockershim"
	"github.com/berth-run/berth/internal/docker/dockershim/image"
	"github.com/berth-run/berth/internal/docker/dockershim/network"
	"github.com/berth-run/berth/internal/runtime"
	"github.com/berth-run/berth/internal/runtime/assets"
)

// options are the flags of the command. They are the flags of cri-dockerd that have an effect here, with the same
// names.
type options struct {
	listen, engine, stateDir      string
	pauseImage, streamAddress     string
	confDir, binDirs, cache, cidr string
	progress                      time.Duration
	plugin, root                  string
	level                         slog.Level
	// withoutEffect are flags of cri-dockerd that change nothing here.
	withoutEffect ignored
}

// ignored are the values of flags that are accepted and change nothing.
type ignored struct {
	requestTimeout   time.Duration
	dualStack        bool
	cgroups, hairpin string
	mtu              int32
}

// Command returns "berth docker-shim".
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "docker-shim",
		Short: "Serve the CRI on a Docker Engine, in place of cri-dockerd",
		Long: `Serve the CRI on a Docker Engine to a kubelet, in place of cri-dockerd: same flags, socket, names and
labels, so that the pods of cri-dockerd run on. docs/docker.md says how to change over and back.

With --listen fd:// the socket comes from systemd. SIGTERM and SIGINT end the shim. Containers keep
running.`,
		Example: "  berth docker-shim --listen unix:///run/cri-dockerd.sock",
		Args:    command.Usage(cobra.NoArgs),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.listen, "listen", "unix:///run/cri-dockerd.sock",
		"`address` to serve the CRI on: unix://PATH or fd://")
	flags.StringVar(&o.listen, "container-runtime-endpoint", o.listen, "the same `address`, by cri-dockerd's name")
	flags.StringVar(&o.engine, "docker-endpoint", "unix:///var/run/docker.sock", "`address` of the Docker Engine")
	flags.StringVar(&o.pauseImage, "pod-infra-container-image", "",
		"`image` of pause containers, pulled if missing (default: one that the shim carries)")
	flags.DurationVar(&o.progress, "image-pull-progress-deadline", image.DefaultProgressDeadline,
		"`time` after which a pull without progress ends")
	flags.StringVar(&o.streamAddress, "streaming-bind-addr", "127.0.0.1:0", "`address` to serve exec, attach and "+
		"port-forward on")
	flags.StringVar(&o.plugin, "network-plugin", "cni", "`kind` of network: only cni")
	flags.StringVar(&o.confDir, "cni-conf-dir", "/etc/cni/net.d", "`directory` of the CNI configuration")
	flags.StringVar(&o.binDirs, "cni-bin-dir", "/opt/cni/bin", "`directories` of CNI plugins, with commas")
	flags.StringVar(&o.cache, "cni-cache-dir", "/var/lib/cni/cache", "`directory` of libcni's cache")
	flags.StringVar(&o.cidr, "pod-cidr", "", "`range` of pod addresses for plugins that take one, until the kubelet "+
		"sends another")
	flags.StringVar(&o.stateDir, "state-dir", "", "`directory` of the mounts of network namespaces (default "+
		"/run/berth-docker-shim/ and a hash of --docker-endpoint)")
	flags.DurationVar(&o.withoutEffect.requestTimeout, "runtime-request-timeout", 0,
		"no effect: calls have the deadlines of the kubelet")
	flags.StringVar(&o.root, "cri-dockerd-root-directory", "/var/lib/cri-dockerd",
		"`directory` of cri-dockerd's files: those of sandboxes that are gone are removed, with their networks")
	flags.BoolVar(&o.withoutEffect.dualStack, "ipv6-dual-stack", false,
		"no effect: pods have the addresses that their network gives")
	flags.Int32Var(&o.withoutEffect.mtu, "network-plugin-mtu", 0, "no effect: the CNI configuration has the MTU")
	flags.StringVar(&o.withoutEffect.hairpin, "hairpin-mode", "", "no effect: the CNI configuration has the mode")
	flags.StringVar(&o.withoutEffect.cgroups, "runtime-cgroups", "",
		"no effect: dockerd stays in the cgroup of its service")
	flags.TextVar(&o.level, "log-level", slog.LevelInfo, "lowest `level` that is logged: debug, info, warn or error")
	command.Mark(cmd.MarkFlagDirname("cni-conf-dir"))
	command.Mark(cmd.MarkFlagDirname("cni-cache-dir"))
	command.Mark(cmd.MarkFlagDirname("state-dir"))
	command.Mark(cmd.MarkFlagDirname("cri-dockerd-root-directory"))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd, o) }
	return cmd
}

func run(cmd *cobra.Command, o options) error {
	log, err := process.Logger(cmd.ErrOrStderr(), "text", o.level)
	if err != nil {
		return err
	}
	librarylog.Forward(log)
	if os.Geteuid() != 0 {
		return client.Next(errors.New("this command needs root"), "run this command as root")
	}
	if o.plugin != "cni" {
		return client.Next(fmt.Errorf("--network-plugin=%s is not supported", o.plugin),
			"leave it out, and install a CNI configuration in --cni-conf-dir")
	}
	ctx, forced, stop := process.OnSignals(cmd.Context(), log) // before there is a socket: whoever sees it may send one
	defer stop()
	server, err := newServer(ctx, o, log)
	if err != nil {
		return err
	}
	listener, err := listen(o.listen)
	if err != nil {
		return err
	}
	log.Info("serving the CRI on Docker", "listen", o.listen, "docker", o.engine)
	return process.Until(forced, func() error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return server.Run(ctx) })
		group.Go(func() error { return server.Serve(ctx, listener) })
		return group.Wait()
	})
}

func newServer(ctx context.Context, o options, log *slog.Logger) (*dockershim.Server, error) {
	program, err := assets.Holder()
	if err != nil {
		return nil, err
	}
	dir := o.stateDir
	if dir == "" {
		dir = stateDir(o.engine)
	}
	return dockershim.Open(ctx, dockershim.Config{
		Endpoint: o.engine, PauseProgram: program, PauseImage: o.pauseImage, PodCIDR: o.cidr, Checkpoints: o.root,
		Pull: image.PullOptions{ProgressDeadline: o.progress}, StreamAddress: o.streamAddress, Log: log,
		Network: network.Config{ConfDir: o.confDir, BinDirs: strings.Split(o.binDirs, ","),
			CacheDirs: []string{o.cache}, NamespaceDir: filepath.Join(dir, "netns"), Log: log},
	})
}

// listen opens the socket, or takes it from systemd.
func listen(address string) (net.Listener, error) {
	if !strings.HasPrefix(address, "fd://") {
		if path, ok := strings.CutPrefix(address, "unix://"); ok {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return nil, err
			}
		}
		return runtime.Listen(address)
	}
	listeners, err := activation.Listeners()
	if err != nil {
		return nil, err
	}
	if len(listeners) != 1 {
		return nil, client.Next(fmt.Errorf("listen on %s: systemd passed %d sockets, want 1", address, len(listeners)),
			"start the shim by a socket unit, or use --listen unix://PATH")
	}
	return listeners[0], nil
}
