package dockershim

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker"
	"github.com/berth-run/berth/internal/docker/dockershim/index"
	"github.com/berth-run/berth/internal/docker/dockerstream"
)

// streams answers the calls of the CRI for commands and streams.
type streams struct {
	index    *index.Index
	commands *dockerstream.Streams
	server   *dockerstream.Server
}

// running returns an error unless a container runs.
func (s *streams) running(id string) error {
	c, err := s.index.Container(id)
	if err != nil {
		return err
	}
	if !c.Running() {
		return status.Errorf(codes.FailedPrecondition, "container %s does not run, but is %s", id, c.State)
	}
	return nil
}

// ExecSync implements the CRI.
func (s *streams) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	if err := s.running(r.GetContainerId()); err != nil {
		return nil, err
	}
	answer, err := s.commands.ExecSync(ctx, r)
	return answer, docker.Error(err)
}

// Exec implements the CRI.
func (s *streams) Exec(_ context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	if err := s.running(r.GetContainerId()); err != nil {
		return nil, err
	}
	return s.server.GetExec(r)
}

// Attach implements the CRI.
func (s *streams) Attach(_ context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	if err := s.running(r.GetContainerId()); err != nil {
		return nil, err
	}
	return s.server.GetAttach(r)
}

// PortForward implements the CRI.
func (s *streams) PortForward(_ context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse,
	error) {
	c, err := s.index.Sandbox(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if !c.Running() {
		return nil, status.Errorf(codes.FailedPrecondition, "sandbox %s does not run", c.ID)
	}
	return s.server.GetPortForward(r)
}

// namespaces implements dockerstream.Pods.
type namespaces struct{ index *index.Index }

// NetNS returns the path of the network namespace of a sandbox.
func (n namespaces) NetNS(_ context.Context, id string) (string, error) {
	c, err := n.index.Sandbox(id)
	switch {
	case err != nil:
		return "", err
	case c.HostNetwork():
		return "", nil
	case c.Pid == 0:
		return "", fmt.Errorf("sandbox %s does not run", id)
	}
	return fmt.Sprintf("/proc/%d/ns/net", c.Pid), nil
}
