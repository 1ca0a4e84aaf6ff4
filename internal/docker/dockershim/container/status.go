package container

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockershim/index"
)

// ContainerStatus implements the CRI.
func (s *Service) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (
	*runtimeapi.ContainerStatusResponse, error) {
	c, err := s.Index.Container(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	answer := &runtimeapi.ContainerStatusResponse{Status: s.status(ctx, c)}
	if r.GetVerbose() {
		text, err := verbose(c, answer.Status.GetResources().GetLinux())
		if err != nil {
			return nil, err
		}
		answer.Info = map[string]string{"info": text}
	}
	return answer, nil
}

func (s *Service) status(ctx context.Context, c *index.Record) *runtimeapi.ContainerStatus {
	tag, digest := s.Images.Names(ctx, c.ImageID)
	return statusOf(c, imageOf(c.Image, tag), digest, s.limit.of(c))
}

// Statuses returns the statuses of the containers of a sandbox.
func (s *Service) Statuses(ctx context.Context, sandbox string) (all []*runtimeapi.ContainerStatus) {
	for c := range s.Index.Of(sandbox) {
		all = append(all, s.status(ctx, c))
	}
	slices.SortFunc(all, func(a, b *runtimeapi.ContainerStatus) int { return int(a.CreatedAt - b.CreatedAt) })
	return all
}

// ListContainers implements the CRI.
func (s *Service) ListContainers(ctx context.Context, r *runtimeapi.ListContainersRequest) (
	*runtimeapi.ListContainersResponse, error) {
	items, err := s.list(ctx, r.GetFilter())
	return &runtimeapi.ListContainersResponse{Containers: items}, err
}

func (s *Service) list(ctx context.Context, f *runtimeapi.ContainerFilter) (items []*runtimeapi.Container, err error) {
	if err := s.Index.Synced(); err != nil {
		return nil, err
	}
	for c := range s.Index.All(false) {
		if matches(c, f) {
			_, digest := s.Images.Names(ctx, c.ImageID)
			items = append(items, itemOf(c, digest))
		}
	}
	slices.SortFunc(items, func(a, b *runtimeapi.Container) int { return int(b.CreatedAt - a.CreatedAt) })
	return items, nil
}

// page is how many items a message of a stream has.
const page = 500

// StreamContainers implements the CRI.
func (s *Service) StreamContainers(r *runtimeapi.StreamContainersRequest,
	to grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	items, err := s.list(to.Context(), r.GetFilter())
	if err != nil {
		return err
	}
	for part := range slices.Chunk(items, page) {
		if err := to.Send(&runtimeapi.StreamContainersResponse{Containers: part}); err != nil {
			return err
		}
	}
	return nil
}
