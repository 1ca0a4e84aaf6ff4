package stats

import (
	"slices"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// page is how many items a message of a stream has.
const page = 100

// StreamContainerStats implements the CRI.
func (s *Service) StreamContainerStats(r *runtimeapi.StreamContainerStatsRequest,
	to grpc.ServerStreamingServer[runtimeapi.StreamContainerStatsResponse]) error {
	all, err := s.containers(to.Context(), r.GetFilter())
	return send(all, err, func(part []*runtimeapi.ContainerStats) error {
		return to.Send(&runtimeapi.StreamContainerStatsResponse{ContainerStats: part})
	})
}

// StreamPodSandboxStats implements the CRI.
func (s *Service) StreamPodSandboxStats(r *runtimeapi.StreamPodSandboxStatsRequest,
	to grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxStatsResponse]) error {
	all, err := s.sandboxes(to.Context(), r.GetFilter())
	return send(all, err, func(part []*runtimeapi.PodSandboxStats) error {
		return to.Send(&runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: part})
	})
}

// StreamPodSandboxMetrics implements the CRI.
func (s *Service) StreamPodSandboxMetrics(_ *runtimeapi.StreamPodSandboxMetricsRequest,
	to grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxMetricsResponse]) error {
	all, err := s.metrics()
	return send(all, err, func(part []*runtimeapi.PodSandboxMetrics) error {
		return to.Send(&runtimeapi.StreamPodSandboxMetricsResponse{PodSandboxMetrics: part})
	})
}

// send sends a list in pages.
func send[T any](all []T, err error, to func([]T) error) error {
	if err != nil {
		return err
	}
	for part := range slices.Chunk(all, page) {
		if err := to(part); err != nil {
			return err
		}
	}
	return nil
}
