package fake

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeServer is the fake's CRI runtime service. Exec, Attach, PortForward, statistics and checkpoints are not
// implemented.
type runtimeServer struct {
	pods   *pods
	images *images
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (r *runtimeServer) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1",
		RuntimeApiVersion: "v1"}, nil
}

func (r *runtimeServer) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	r.pods.mu.Lock()
	defer r.pods.mu.Unlock()
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, r.pods.network,
	}}}, nil
}

func (r *runtimeServer) RuntimeConfig(context.Context,
	*runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{
		Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}, nil
}

func (r *runtimeServer) UpdateRuntimeConfig(context.Context,
	*runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

func (r *runtimeServer) GetContainerEvents(_ *runtimeapi.GetEventsRequest,
	out grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	events := make(chan *runtimeapi.ContainerEventResponse, 1000)
	r.pods.mu.Lock()
	r.pods.streams[events] = true
	r.pods.mu.Unlock()
	defer func() {
		r.pods.mu.Lock()
		delete(r.pods.streams, events)
		r.pods.mu.Unlock()
	}()
	for {
		select {
		case <-out.Context().Done():
			return status.FromContextError(out.Context().Err()).Err()
		case event, ok := <-events:
			if !ok {
				return status.Error(codes.Unavailable, "event stream dropped")
			}
			if err := out.Send(event); err != nil {
				return err
			}
		}
	}
}

func notFound(kind, id string) error {
	return status.Errorf(codes.NotFound, "%s %q: not found", kind, id)
}
