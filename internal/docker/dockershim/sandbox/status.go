package sandbox

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockershim/index"
)

// ready reports whether a sandbox can have containers: its pause container runs, and it is on its network. A sandbox
// whose maker was killed before it had a network is not ready.
func (s *Service) ready(c *index.Record) bool {
	return c.Running() && (c.HostNetwork() || len(s.Network.Addresses(c.ID, c.Pid)) > 0)
}

func (s *Service) addresses(c *index.Record) []netip.Addr {
	if !c.Running() || c.HostNetwork() {
		return nil
	}
	return s.Network.Addresses(c.ID, c.Pid)
}

// StatusOf returns the status of a sandbox.
func (s *Service) StatusOf(c *index.Record) *runtimeapi.PodSandboxStatus {
	return statusOf(c, s.ready(c), s.addresses(c))
}

// PodSandboxStatus implements the CRI.
func (s *Service) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (
	*runtimeapi.PodSandboxStatusResponse, error) {
	c, err := s.Index.Sandbox(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	answer := &runtimeapi.PodSandboxStatusResponse{Status: s.StatusOf(c), Timestamp: time.Now().UnixNano(),
		ContainersStatuses: s.Containers.Statuses(ctx, c.ID)}
	if r.GetVerbose() {
		text, err := json.Marshal(map[string]any{"pid": c.Pid, "name": c.Name, "image": c.Image})
		if err != nil {
			return nil, err
		}
		answer.Info = map[string]string{"info": string(text)}
	}
	return answer, nil
}

// ListPodSandbox implements the CRI.
func (s *Service) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (
	*runtimeapi.ListPodSandboxResponse, error) {
	items, err := s.list(r.GetFilter())
	return &runtimeapi.ListPodSandboxResponse{Items: items}, err
}

func (s *Service) list(f *runtimeapi.PodSandboxFilter) (items []*runtimeapi.PodSandbox, err error) {
	if err := s.Index.Synced(); err != nil {
		return nil, err
	}
	for c := range s.Index.All(true) {
		if item := itemOf(c, s.ready(c)); matches(item, f) {
			items = append(items, item)
		}
	}
	slices.SortFunc(items, func(a, b *runtimeapi.PodSandbox) int { return int(b.CreatedAt - a.CreatedAt) })
	return items, nil
}

// page is how many items a message of a stream has.
const page = 500

// StreamPodSandboxes implements the CRI.
func (s *Service) StreamPodSandboxes(r *runtimeapi.StreamPodSandboxesRequest,
	to grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	items, err := s.list(r.GetFilter())
	if err != nil {
		return err
	}
	for part := range slices.Chunk(items, page) {
		if err := to.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: part}); err != nil {
			return err
		}
	}
	return nil
}
