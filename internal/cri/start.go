package cri

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/retry"
)

// SandboxStatuses is the part of the runtime service that tells the state of a sandbox.
type SandboxStatuses interface {
	PodSandboxStatus(context.Context, *runtimeapi.PodSandboxStatusRequest,
		...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error)
}

// endKnown is how long after a failed start a runtime may still not know that the sandbox has ended. containerd learns
// it from the shim, which first answers the call.
const endKnown = 300 * time.Millisecond

// SandboxEnded reports whether the runtime says that a sandbox has ended, a short time after the start of a container
// has failed in it. It is false if the runtime does not answer.
func SandboxEnded(ctx context.Context, runtime SandboxStatuses, id string) bool {
	for until := time.Now().Add(endKnown); ; {
		resp, err := runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
		if err != nil || resp.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
			return err == nil
		}
		if !time.Now().Before(until) || retry.Sleep(ctx, endKnown/6) != nil {
			return false
		}
	}
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
