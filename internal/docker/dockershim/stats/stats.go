package stats

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockershim/index"
	"github.com/berth-run/berth/internal/docker/dockerstats"
)

// Engine knows where the Engine has its files.
type Engine interface {
	// Store returns the directory that has the writable layers of containers.
	Store(ctx context.Context) (string, error)
}

// Service answers the calls.
type Service struct {
	index  *index.Index
	engine Engine
	stats  *dockerstats.Stats
}

// New makes a Service. It does no I/O.
func New(index *index.Index, engine Engine, log *slog.Logger) *Service {
	return &Service{index, engine, dockerstats.New(dockerstats.Options{Proc: "/proc", Cgroups: "/sys/fs/cgroup",
		Now: time.Now, Log: log})}
}

// Run measures the layers of containers until ctx ends.
func (s *Service) Run(ctx context.Context) error { return s.stats.Run(ctx) }

// ContainerStats implements the CRI.
func (s *Service) ContainerStats(ctx context.Context, r *runtimeapi.ContainerStatsRequest) (
	*runtimeapi.ContainerStatsResponse, error) {
	c, err := s.index.Container(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	root, err := s.engine.Store(ctx)
	if err != nil {
		return nil, err
	}
	one, err := s.stats.Container(containerOf(c))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, status.Errorf(codes.NotFound, "container %s has ended: %v", c.ID, err)
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatsResponse{Stats: located(one, root)}, nil
}

// ListContainerStats implements the CRI. It reports the containers that run.
func (s *Service) ListContainerStats(ctx context.Context, r *runtimeapi.ListContainerStatsRequest) (
	*runtimeapi.ListContainerStatsResponse, error) {
	all, err := s.containers(ctx, r.GetFilter())
	return &runtimeapi.ListContainerStatsResponse{Stats: all}, err
}

func (s *Service) containers(ctx context.Context, f *runtimeapi.ContainerStatsFilter) (
	all []*runtimeapi.ContainerStats, err error) {
	if err := s.index.Synced(); err != nil {
		return nil, err
	}
	root, err := s.engine.Store(ctx)
	if err != nil {
		return nil, err
	}
	for c := range s.index.All(false) {
		if !c.Running() || !matches(c, f) {
			continue
		}
		one, err := s.stats.Container(containerOf(c))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, located(one, root))
	}
	return all, nil
}

// PodSandboxStats implements the CRI.
func (s *Service) PodSandboxStats(ctx context.Context, r *runtimeapi.PodSandboxStatsRequest) (
	*runtimeapi.PodSandboxStatsResponse, error) {
	c, err := s.index.Sandbox(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	all, err := s.sandboxes(ctx, &runtimeapi.PodSandboxStatsFilter{Id: c.ID})
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, status.Errorf(codes.NotFound, "sandbox %s does not run", c.ID)
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: all[0]}, nil
}

// ListPodSandboxStats implements the CRI. It reports the sandboxes that run.
func (s *Service) ListPodSandboxStats(ctx context.Context, r *runtimeapi.ListPodSandboxStatsRequest) (
	*runtimeapi.ListPodSandboxStatsResponse, error) {
	all, err := s.sandboxes(ctx, r.GetFilter())
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: all}, err
}

func (s *Service) sandboxes(ctx context.Context, f *runtimeapi.PodSandboxStatsFilter) (
	all []*runtimeapi.PodSandboxStats, err error) {
	root, err := s.engine.Store(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := s.pods(f)
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		one, err := s.stats.Sandbox(p)
		if err != nil {
			return nil, err
		}
		for _, c := range one.Linux.Containers {
			located(c, root)
		}
		all = append(all, one)
	}
	return all, nil
}

// ListMetricDescriptors implements the CRI.
func (s *Service) ListMetricDescriptors(context.Context, *runtimeapi.ListMetricDescriptorsRequest) (
	*runtimeapi.ListMetricDescriptorsResponse, error) {
	return &runtimeapi.ListMetricDescriptorsResponse{Descriptors: dockerstats.Descriptors()}, nil
}

// ListPodSandboxMetrics implements the CRI.
func (s *Service) ListPodSandboxMetrics(context.Context, *runtimeapi.ListPodSandboxMetricsRequest) (
	*runtimeapi.ListPodSandboxMetricsResponse, error) {
	all, err := s.metrics()
	return &runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: all}, err
}

func (s *Service) metrics() (all []*runtimeapi.PodSandboxMetrics, err error) {
	pods, err := s.pods(nil)
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		one, err := s.stats.Metrics(p)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// pods returns the sandboxes that run, with their containers that run.
func (s *Service) pods(f *runtimeapi.PodSandboxStatsFilter) (all []dockerstats.Sandbox, err error) {
	if err := s.index.Synced(); err != nil {
		return nil, err
	}
	of := map[string][]dockerstats.Container{}
	for c := range s.index.All(false) {
		if c.Running() {
			of[c.SandboxID] = append(of[c.SandboxID], containerOf(c))
		}
	}
	for c := range s.index.All(true) {
		if c.Running() && (f.GetId() == "" || f.GetId() == c.ID) && selects(f.GetLabelSelector(), c.Labels) {
			all = append(all, sandboxOf(c, of[c.ID]))
		}
	}
	return all, nil
}
