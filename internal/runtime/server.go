package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	ctrserver "github.com/containerd/containerd/v2/cmd/containerd/server"
	srvconfig "github.com/containerd/containerd/v2/cmd/containerd/server/config"
	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/runtime/network"
)

const (
	inProcessID  = "berth"
	inProcessURI = "io.containerd.server.v1." + inProcessID
	// criNamespace is the containerd namespace of the CRI plugin's images and containers.
	criNamespace = "k8s.io"
	// stopTimeout is how long cancelled calls may take to clean up.
	stopTimeout = 2 * time.Second
)

// criService is containerd's CRI plugin.
type criService interface {
	Register(*grpc.Server) error
	runtimeapi.RuntimeServiceServer
}

// server is the running containerd. It is registered as a containerd plugin itself, which gives it access to the other
// plugins.
type server struct {
	containerd *ctrserver.Server
	end        context.CancelFunc // ends containerd's background work
	client     *containerd.Client // in memory, in the CRI's namespace
	cri        criService
	images     interface {
		UpdateImage(ctx context.Context, name string) error
	}
	snapshotter string
	network     *network.Network
	importing   sync.Mutex
	transfers   transfers
}

// startServer starts containerd and waits until its plugins are ready. It gives up when ctx ends, or when containerd's
// fatal error arrives on failed. The server outlives ctx and runs until stop, so that its callers can end first.
func startServer(ctx context.Context, config *srvconfig.Config, snapshotter string, failed <-chan error) (*server,
	error) {
	s := &server{snapshotter: snapshotter}
	if err := s.register(); err != nil {
		return nil, err
	}
	if err := ctrserver.CreateTopLevelDirectories(config); err != nil {
		return nil, err
	}
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	s.end = end
	var err error
	if s.containerd, err = ctrserver.New(alive, config); err != nil {
		end()
		return nil, err
	}
	if err := s.awaitStart(ctx, alive, failed); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// awaitStart starts containerd's plugins and waits until they are ready.
func (s *server) awaitStart(ctx, alive context.Context, failed <-chan error) error {
	if err := s.containerd.Start(alive); err != nil {
		return err
	}
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		s.containerd.Wait()
	}()
	select {
	case <-ready:
		return nil
	case err := <-failed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// register registers s as a containerd plugin. The plugin registry is global to the process and panics on a second
// registration, so a process can have only one server.
func (s *server) register() (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("a runtime has run in this process already: containerd allows one per process")
		}
	}()
	registerContent()
	registry.Register(&plugin.Registration{
		Type:     plugins.ServerPlugin,
		ID:       inProcessID,
		Requires: []plugin.Type{plugins.GRPCPlugin, plugins.CRIServicePlugin},
		InitFn:   s.connect,
	})
	return nil
}

// connect is the plugin's initialiser. It gets the CRI service, the image list and a client from the plugins that s
// depends on.
func (s *server) connect(ic *plugin.InitContext) (any, error) {
	cri, err := ic.GetByID(plugins.GRPCPlugin, "cri")
	if err != nil {
		return nil, err
	}
	images, err := ic.GetByID(plugins.CRIServicePlugin, "images")
	if err != nil {
		return nil, err
	}
	var isCRI, isImages bool
	s.cri, isCRI = cri.(criService)
	s.images, isImages = images.(interface {
		UpdateImage(ctx context.Context, name string) error
	})
	if !isCRI || !isImages {
		return nil, fmt.Errorf("containerd's CRI plugins have unexpected types %T and %T", cri, images)
	}
	s.client, err = containerd.New("", containerd.WithDefaultNamespace(criNamespace),
		containerd.WithInMemoryServices(ic))
	return s, err
}

// Start implements the interface of containerd's server plugins. There is no socket to listen on.
func (*server) Start(context.Context) error { return nil }

// service is a gRPC server for the CRI that can end without waiting for streams. containerd's GetContainerEvents does
// not notice when its caller disconnects, and would block a graceful stop for ever.
type service struct {
	*grpc.Server
	calls *sync.WaitGroup // unary calls in progress
}

// newGRPC makes a server whose spans go to tracer, as children of the callers' spans. With a nil tracer it makes no
// spans.
func (s *server) newGRPC(tracer trace.TracerProvider) (service, error) {
	calls := &sync.WaitGroup{}
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(defaults.DefaultMaxRecvMsgSize),
		grpc.MaxSendMsgSize(defaults.DefaultMaxSendMsgSize),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
			handle grpc.UnaryHandler) (any, error) {
			calls.Add(1)
			defer calls.Done()
			if pull, ok := req.(*runtimeapi.PullImageRequest); ok {
				var done func()
				ctx, done = s.transfers.begin(ctx, pull.GetImage().GetImage())
				defer done()
			}
			if err := s.network.Before(ctx, req); err != nil {
				return nil, err
			}
			answer, err := handle(traced(ctx, tracer, info.FullMethod), req)
			s.network.After(context.WithoutCancel(ctx), req, err != nil)
			return answer, err
		}))
	if err := s.cri.Register(server); err != nil {
		return service{}, fmt.Errorf("register CRI services: %w", err)
	}
	return service{server, calls}, nil
}

// end closes the connections, which cancels the calls in progress, and waits up to stopTimeout for them to clean up.
func (s service) end() {
	s.Stop()
	done := make(chan struct{})
	go func() { s.calls.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(stopTimeout):
	}
}

// stop ends containerd's background work, then containerd. Containers and their shims run on.
func (s *server) stop() {
	s.end()
	s.containerd.Stop()
}
