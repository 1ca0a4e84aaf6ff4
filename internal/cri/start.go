package cri

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SandboxStatuses is the part of the runtime service that tells the state of a sandbox.
type SandboxStatuses interface {
	PodSandboxStatus(context.Context, *runtimeapi.PodSandboxStatusRequest,
		...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error)
}

// SandboxEnded reports whether the runtime says that a sandbox has ended. It is false if the runtime does not answer.
func SandboxEnded(ctx context.Context, runtime SandboxStatuses, id string) bool {
	resp, err := runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	return err == nil && resp.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// NeverStarted reports whether a StartContainer that failed with err has not run the container's program. It is false
// if the answer was lost, of the runtime or of containerd's shim: the program may have run then.
func NeverStarted(err error) bool {
	if err == nil || IsUnavailable(err) || IsDeadline(err) || status.Code(err) == codes.Canceled {
		return false
	}
	text := err.Error()
	lost := strings.Contains(text, "ttrpc: closed") || strings.Contains(text, "context canceled")
	return !lost || !strings.Contains(text, "failed to start containerd task")
}
