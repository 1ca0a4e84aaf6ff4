package dockershim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker"
	"github.com/berth-run/berth/internal/docker/dockerlog"
	"github.com/berth-run/berth/internal/docker/dockershim/container"
	"github.com/berth-run/berth/internal/docker/dockershim/image"
	"github.com/berth-run/berth/internal/docker/dockershim/index"
	"github.com/berth-run/berth/internal/docker/dockershim/network"
	"github.com/berth-run/berth/internal/docker/dockershim/node"
	"github.com/berth-run/berth/internal/docker/dockershim/pause"
	"github.com/berth-run/berth/internal/docker/dockershim/sandbox"
	"github.com/berth-run/berth/internal/docker/dockershim/stats"
	"github.com/berth-run/berth/internal/docker/dockerstream"
)

// Config configures a Server.
type Config struct {
	// Endpoint is the Engine's endpoint: docker://[unix://PATH].
	Endpoint string
	// Network is the pod network.
	Network network.Config
	// PauseProgram is the program of holders, for Berth's own pause image. PauseImage is the name of another image, or
	// "".
	PauseProgram []byte
	PauseImage   string
	// Checkpoints is the root directory of cri-dockerd, whose sandboxes are adopted; "" if there is none.
	Checkpoints string
	// Pull configures pulls of images.
	Pull image.PullOptions
	// PodCIDR are the ranges of pod addresses until UpdateRuntimeConfig brings others: CIDR[,CIDR]; "" for none.
	PodCIDR string
	// StreamAddress is where streams are served; "" is a free port of 127.0.0.1.
	StreamAddress string
	// Log is never nil.
	Log *slog.Logger
}

// Server serves the CRI. Its parts have the methods.
type Server struct {
	sandboxes
	containers
	engine
	*streams
	usage
	absent

	config   Config
	client   *docker.Client
	index    *index.Index
	copier   *dockerlog.Copier
	images   *image.Service
	pods     *network.Network
	listener net.Listener
}

// The parts have names of their own, since each is called Service.
type (
	sandboxes  struct{ *sandbox.Service }
	containers struct{ *container.Service }
	engine     struct{ *node.Service }
	usage      struct{ *stats.Service }
)

// absent answers the calls that Docker cannot serve, CheckpointPod and RestorePod, with Unimplemented. It is nested
// more deeply than the parts, so that Go prefers the methods of the parts.
type absent struct{ nested }

type nested struct{ deeper }

type deeper struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

// Open makes a server that listens for streams. It does no other I/O. The server works while Run runs.
func Open(ctx context.Context, c Config) (*Server, error) {
	client, err := docker.New(c.Endpoint)
	if err != nil {
		return nil, err
	}
	s := &Server{config: c, client: client, copier: dockerlog.New(c.Log)}
	s.index = index.New(client, observer{logs{s.copier, c.Log}, s}, c.Log)
	pods := network.New(c.Network)
	s.pods = pods
	if c.PodCIDR != "" {
		if err := pods.SetPodCIDR(ctx, c.PodCIDR); err != nil {
			return nil, err
		}
	}
	name := c.PauseImage
	if name == "" {
		name = pause.Name(c.PauseProgram)
	}
	s.engine = engine{node.New(client, s.index, pods, name)}
	s.usage = usage{stats.New(s.index, s.engine, c.Log)}
	s.images = image.New(client, s.engine, c.Pull, name)
	s.containers = containers{container.New(container.Parts{Client: client, Index: s.index, Engine: s.engine,
		Images: s.images, Logs: logs{s.copier, c.Log}, Log: c.Log})}
	s.sandboxes = sandboxes{sandbox.New(sandbox.Parts{Client: client, Index: s.index, Network: pods, Engine: s.engine,
		Image: pause.New(client, s.images, c.PauseProgram, c.PauseImage), Containers: s.containers,
		Checkpoints: sandbox.Checkpoints(c.Checkpoints), Log: c.Log})}
	address := c.StreamAddress
	if address == "" {
		address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0).String()
	}
	s.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for streams: %w", err)
	}
	commands := dockerstream.New(client.Client, namespaces{s.index}, c.Log)
	server, err := dockerstream.NewServer(commands, s.listener)
	if err != nil {
		return nil, errors.Join(err, s.listener.Close())
	}
	s.streams = &streams{s.index, commands, server}
	return s, nil
}

// Register adds both services of the CRI to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	runtimeapi.RegisterRuntimeServiceServer(r, s)
	runtimeapi.RegisterImageServiceServer(r, s.images)
}

// Run follows the Engine, copies logs and serves streams until ctx ends. Containers run on.
func (s *Server) Run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return s.copier.Run(ctx) })
	parts.Go(func() error { return s.index.Run(ctx) })
	parts.Go(func() error { return s.server.Run(ctx) })
	parts.Go(func() error { return s.usage.Run(ctx) })
	err := parts.Wait()
	return errors.Join(err, s.client.Close())
}

// observer implements index.Observer.
type observer struct {
	logs
	server *Server
}

// Changed copies logs. It also releases the network of a sandbox that the Engine no longer has: a user may have removed
// the sandbox without stopping it before.
func (o observer) Changed(ctx context.Context, before, after *index.Record) {
	if after == nil && before.Sandbox {
		if err := o.server.pods.Stop(ctx, before.ID); err != nil {
			o.log.Warn("cannot release the network of a removed sandbox, retrying at the next start", "sandbox",
				before.ID, "err", err)
		}
	}
	o.logs.Changed(ctx, before, after)
}

// Listed lets packets of pods pass dockerd's rules. After the first list it also removes the networks of sandboxes that
// the Engine no longer has.
func (o observer) Listed(ctx context.Context, first bool) {
	if err := o.server.pods.Accept(ctx); err != nil && ctx.Err() == nil {
		o.log.Warn("cannot let packets of pods pass dockerd's rules, retrying after the next list of containers",
			"err", err)
	}
	if !first {
		return
	}
	if err := o.server.Sweep(ctx); err != nil && ctx.Err() == nil {
		o.log.Warn("cannot remove the networks of earlier sandboxes, retrying at the next start", "err", err)
	}
}
