package podresources

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/guard/rpc"
	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// The kubelet's rate limits, for all callers together.
const (
	callsPerSecond = 100
	callsAtOnce    = 10
)

// pods knows the pods that hold resources of the node.
type pods interface {
	Pods() []*corev1.Pod
}

// ledger records the resources that pods hold.
type ledger interface {
	Get(types.UID) (resource.Allocation, bool)
	// CPUs and Memory return the resources that can be allocated exclusively. They are empty if the node's policies
	// allocate none.
	CPUs() cpuset.CPUSet
	Memory() []memory.Block
}

// devices knows the devices of the plugins and the NUMA nodes of allocated devices.
type devices interface {
	Inventory() device.Inventory
	Nodes(uid types.UID, container string, name corev1.ResourceName, id device.ID) topology.Nodes
}

// claims looks up the devices of a container's ResourceClaims. The result is nil if it has none.
type claims interface {
	DynamicResources(p *corev1.Pod, container string) []*api.DynamicResource
}

// Options configure a Server. All are required unless they say otherwise.
type Options struct {
	// Socket is the path of the unix socket to listen on.
	Socket  string
	Pods    pods
	Ledger  ledger
	Devices devices
	// Claims is nil for an agent without a cluster.
	Claims claims
	Log    *slog.Logger
}

// Server answers PodResources calls.
type Server struct {
	api.UnimplementedPodResourcesListerServer
	opts    Options
	metrics metrics
}

// New returns a server that Run starts.
func New(o Options) *Server { return &Server{opts: o, metrics: newMetrics()} }

// Run serves until ctx ends. If it cannot listen, it logs an error and waits for ctx, so that the node
// works without this API.
func (s *Server) Run(ctx context.Context) error {
	l, err := s.listen()
	if err != nil {
		s.opts.Log.Error("cannot serve the PodResources API, continuing without it", "err", err)
		<-ctx.Done()
		return ctx.Err()
	}
	limit := rate.NewLimiter(callsPerSecond, callsAtOnce)
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(rpc.Unary(s.opts.Log), func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
			handle grpc.UnaryHandler) (_ any, err error) {
			defer func() { s.metrics.count(info.FullMethod, err) }()
			if !limit.Allow() {
				return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
			}
			return handle(ctx, req)
		}, rpc.Unary(s.opts.Log)))
	api.RegisterPodResourcesListerServer(server, s)
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(l); ctx.Err() == nil {
		return fmt.Errorf("serve the PodResources API: %w", err)
	}
	return ctx.Err()
}

func (s *Server) listen() (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(s.opts.Socket), 0o750); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if err := os.Remove(s.opts.Socket); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("remove the socket of an earlier agent: %w", err)
	}
	return unixsocket.Listen(s.opts.Socket)
}

// List implements the API.
func (s *Server) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	r := &api.ListPodResourcesResponse{}
	for _, p := range s.opts.Pods.Pods() {
		r.PodResources = append(r.PodResources, s.pod(p))
	}
	return r, nil
}

// Get implements the API.
func (s *Server) Get(_ context.Context, r *api.GetPodResourcesRequest) (*api.GetPodResourcesResponse, error) {
	for _, p := range s.opts.Pods.Pods() {
		if p.Name == r.GetPodName() && p.Namespace == r.GetPodNamespace() {
			return &api.GetPodResourcesResponse{PodResources: s.pod(p)}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "pod %s in namespace %s not found", r.GetPodName(), r.GetPodNamespace())
}

// GetAllocatableResources implements the API.
func (s *Server) GetAllocatableResources(context.Context,
	*api.AllocatableResourcesRequest) (*api.AllocatableResourcesResponse, error) {
	return &api.AllocatableResourcesResponse{
		Devices: healthy(s.opts.Devices.Inventory()), CpuIds: ids(s.opts.Ledger.CPUs()),
		Memory: blocks(s.opts.Ledger.Memory()),
	}, nil
}

func (s *Server) pod(p *corev1.Pod) *api.PodResources {
	a, _ := s.opts.Ledger.Get(p.UID)
	r := render(p, a, func(container string, name corev1.ResourceName, id device.ID) topology.Nodes {
		return s.opts.Devices.Nodes(p.UID, container, name, id)
	})
	if s.opts.Claims != nil {
		for _, c := range r.Containers {
			c.DynamicResources = s.opts.Claims.DynamicResources(p, c.Name)
		}
	}
	return r
}
