package drift

import (
	"context"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Updates is the runtime for parts of the agent that change the resources of running containers. It marks their updates
// as the agent's own, so that Containers do not report them as changes from outside.
type Updates struct {
	runtimeapi.RuntimeServiceClient
	Containers *Containers
}

// UpdateContainerResources implements runtimeapi.RuntimeServiceClient.
func (u Updates) UpdateContainerResources(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest,
	opts ...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	defer u.Containers.Hold(r.ContainerId)()
	return u.RuntimeServiceClient.UpdateContainerResources(ctx, r, opts...)
}
