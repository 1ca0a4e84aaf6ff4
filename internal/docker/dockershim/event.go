package dockershim

import (
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockershim/index"
)

// GetContainerEvents implements the CRI.
func (s *Server) GetContainerEvents(_ *runtimeapi.GetEventsRequest,
	to grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	events := s.index.Subscribe()
	defer events.Close()
	for {
		all, err := events.Next(to.Context())
		if err != nil {
			return err
		}
		for _, e := range all {
			if err := to.Send(s.event(to, e)); err != nil {
				return err
			}
		}
	}
}

// event converts an event. The statuses in it are current, which may be later than the event.
func (s *Server) event(to grpc.ServerStream, e index.Event) *runtimeapi.ContainerEventResponse {
	answer := &runtimeapi.ContainerEventResponse{ContainerId: e.Record.ID, ContainerEventType: e.Type,
		CreatedAt: e.At.UnixNano()}
	id := e.Record.SandboxID
	if e.Record.Sandbox {
		id = e.Record.ID
	}
	if c, err := s.index.Sandbox(id); err == nil {
		answer.PodSandboxStatus = s.StatusOf(c)
		answer.ContainersStatuses = s.Statuses(to.Context(), id)
	}
	return answer
}
