package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	ctrserver "github.com/containerd/containerd/v2/cmd/containerd/server"
	srvconfig "github.com/containerd/containerd/v2/cmd/containerd/server/config"
	"github.com/containerd/containerd/v2/defaults"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/guard/rpc"
	"github.com/berth-run/berth/internal/base/headstart"
	"github.com/berth-run/berth/internal/base/inflight"
	"github.com/berth-run/berth/internal/runtime/attach"
	"github.com/berth-run/berth/internal/runtime/briefspec"
	"github.com/berth-run/berth/internal/runtime/command"
	"github.com/berth-run/berth/internal/runtime/exits"
	"github.com/berth-run/berth/internal/runtime/garbage"
	"github.com/berth-run/berth/internal/runtime/handler"
	"github.com/berth-run/berth/internal/runtime/logpath"
	"github.com/berth-run/berth/internal/runtime/network"
	"github.com/berth-run/berth/internal/runtime/records"
	"github.com/berth-run/berth/internal/runtime/replace"
	"github.com/berth-run/berth/internal/runtime/restore"
	"github.com/berth-run/berth/internal/runtime/sandbox"
	"github.com/berth-run/berth/internal/runtime/spans"
	"github.com/berth-run/berth/internal/runtime/unpack"
	"github.com/berth-run/berth/internal/runtime/watcher"
)

const (
	inProcessID  = "berth"
	inProcessURI = "io.containerd.server.v1." + inProcessID
	// criNamespace is the containerd namespace of the CRI plugin's images and containers.
	criNamespace = "k8s.io"
	// stopTimeout is how long cancelled calls may take to clean up, and after them containerd with ended containers.
	stopTimeout = 2 * time.Second
)

// registrar is a containerd plugin that serves gRPC.
type registrar interface {
	Register(*grpc.Server) error
}

// criService is containerd's CRI plugin.
type criService interface {
	registrar
	runtimeapi.RuntimeServiceServer
}

// imageList is containerd's plugin with the images that the CRI lists.
type imageList interface {
	UpdateImage(ctx context.Context, name string) error
}

// server is the running containerd. It is registered as a containerd plugin itself, which gives it access to the other
// plugins.
type server struct {
	containerd  *ctrserver.Server
	end         context.CancelFunc // ends containerd's background work
	client      *containerd.Client // in memory, in the CRI's namespace
	cri         criService
	tasks       registrar // beside the CRI, for a task that the CRI plugin has forgotten (package cri)
	images      imageList
	snapshotter string
	logs        logpath.Paths
	boxes       *sandbox.Controller
	network     *network.Network
	commands    command.Runner
	attach      *attach.Server
	restorer    *restore.Restorer
	records     *records.Records
	importing   sync.Mutex
	transfers   transfers
	handlers    handler.Handlers
	headstart   *headstart.Headstart
	exits       *exits.Gate
	stock       any // containerd's controller of pause containers
}

// startServer starts containerd and waits until its plugins are ready. It gives up when ctx ends, or when containerd's
// fatal error arrives on failed. The server outlives ctx and runs until stop, so that its callers can end first.
func startServer(ctx context.Context, config *srvconfig.Config, boxes *sandbox.Controller, kept *records.Records,
	snapshotter string, failed <-chan error) (*server, error) {
	s := &server{snapshotter: snapshotter, boxes: boxes, records: kept}
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
	briefspec.Register()
	s.exits = exits.Register()
	unpack.RegisterSynced()
	garbage.Register()
	s.boxes.Register()
	registry.Register(&plugin.Registration{
		Type: plugins.ServerPlugin,
		ID:   inProcessID,
		Requires: []plugin.Type{plugins.GRPCPlugin, plugins.CRIServicePlugin, plugins.MetadataPlugin,
			plugins.PodSandboxPlugin, plugins.RuntimePluginV2},
		InitFn: s.connect,
	})
	return nil
}

// connect is the plugin's initialiser. It gets the CRI and task services, the image list and a client from the
// plugins that s depends on.
func (s *server) connect(ic *plugin.InitContext) (any, error) {
	var errs [7]error
	s.cri, errs[0] = replace.ByID[criService](ic, plugins.GRPCPlugin, "cri")
	s.tasks, errs[1] = replace.ByID[registrar](ic, plugins.GRPCPlugin, "tasks")
	s.images, errs[2] = replace.ByID[imageList](ic, plugins.CRIServicePlugin, "images")
	s.stock, errs[5] = replace.ByID[any](ic, plugins.PodSandboxPlugin, "podsandbox")
	running, err := replace.ByID[attach.Tasks](ic, plugins.RuntimePluginV2, "task")
	s.attach, errs[6] = attach.New(s.cri, running, criNamespace), err
	db, err := replace.ByID[records.Database](ic, plugins.MetadataPlugin, "bolt")
	if err == nil {
		s.records.Follow(db)
	}
	errs[3] = err
	s.client, errs[4] = containerd.New("", containerd.WithDefaultNamespace(criNamespace),
		containerd.WithInMemoryServices(ic))
	return s, errors.Join(errs[:]...)
}

// Start implements the interface of containerd's server plugins. There is no socket to listen on.
func (*server) Start(context.Context) error { return nil }

// service is a gRPC server for the CRI that can end without waiting for streams. containerd's GetContainerEvents does
// not notice when its caller disconnects, and would block a graceful stop for ever.
type service struct {
	*grpc.Server
	calls *inflight.Gate // unary calls in progress
}

// newGRPC makes a server whose spans go to tracer, as children of the callers' spans. With a nil tracer it makes no
// spans.
func (s *server) newGRPC(tracer trace.TracerProvider, log *slog.Logger) (service, error) {
	calls := &inflight.Gate{}
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(defaults.DefaultMaxRecvMsgSize),
		grpc.MaxSendMsgSize(defaults.DefaultMaxSendMsgSize),
		grpc.ChainUnaryInterceptor(rpc.Unary(log), func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
			handle grpc.UnaryHandler) (any, error) {
			if !calls.Enter() {
				return nil, status.Error(codes.Unavailable, "the runtime is stopping")
			}
			defer calls.Leave()
			if pull, ok := req.(*runtimeapi.PullImageRequest); ok {
				var done func()
				ctx, done = s.transfers.begin(ctx, pull.GetImage().GetImage())
				defer done()
			}
			if namespace, ok := namespaces.Namespace(ctx); ok { // a call of the task service has it in its header
				ctx = namespaces.WithNamespace(ctx, namespace)
			}
			ctx = briefspec.Context(ctx, req)
			if err := s.handlers.Check(req); err != nil {
				return nil, err
			}
			if startsProcess(req) {
				s.headstart.Expect()
			}
			ctx, err := s.network.Before(ctx, req)
			if err != nil {
				return nil, err
			}
			if answer, ok, err := s.commands.Handle(ctx, req); ok {
				return answer, err
			}
			if answer, ok, err := s.attach.Handle(ctx, req); ok {
				return answer, err
			}
			prepared, err := s.restorer.Before(namespaces.WithNamespace(ctx, criNamespace), req)
			if err != nil {
				return nil, err
			}
			if err := s.logs.Before(namespaces.WithNamespace(ctx, criNamespace), req); err != nil {
				return nil, err
			}
			answer, err := handle(spans.Context(ctx, tracer, info.FullMethod), req)
			if err = s.restorer.After(prepared, req, answer, err); err == nil {
				err = s.logs.After(namespaces.WithNamespace(ctx, criNamespace), req, answer)
			}
			s.network.After(context.WithoutCancel(ctx), req, err != nil)
			if _, ok := req.(*runtimeapi.PullImageRequest); ok && err == nil {
				err = s.records.Sync()
			}
			if list, ok := answer.(*runtimeapi.ListPodSandboxResponse); ok {
				s.date(ctx, list.GetItems())
			}
			return answer, err
		}, rpc.Unary(log)),
		grpc.ChainStreamInterceptor(rpc.Stream(log), func(service any, stream grpc.ServerStream,
			_ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			return watcher.Serve(stream, log, func(stream grpc.ServerStream) error {
				return handle(service, watcher.Brief(logpath.Events{ServerStream: stream}))
			})
		}))
	if err := errors.Join(s.cri.Register(server), s.tasks.Register(server)); err != nil {
		return service{}, fmt.Errorf("register CRI services: %w", err)
	}
	return service{server, calls}, nil
}

// startsProcess reports whether a call, or the next one of its caller, starts a process in a cgroup.
func startsProcess(req any) bool {
	switch req.(type) {
	case *runtimeapi.CreateContainerRequest, *runtimeapi.StartContainerRequest, *runtimeapi.ExecSyncRequest,
		*runtimeapi.ExecRequest:
		return true
	}
	return false
}

// end closes the connections, which cancels the calls in progress, and waits up to stopTimeout for them to clean up.
func (s service) end() {
	s.Stop()
	select {
	case <-s.calls.Close():
	case <-time.After(stopTimeout):
	}
}

// stop ends containerd's background work, then containerd. Containers and their shims run on.
func (s *server) stop() {
	s.end()
	s.exits.Close(stopTimeout)
	s.containerd.Stop()
}
