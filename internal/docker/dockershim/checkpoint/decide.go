package checkpoint

import (
	"strings"
	"time"

	metadata "github.com/checkpoint-restore/checkpointctl/lib"
	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker"
	"github.com/berth-run/berth/internal/docker/dockershim/index"
)

// explained returns the gRPC error for an error of the Engine's checkpoint. It says what the Engine lacks.
func explained(err error) error {
	switch {
	case err == nil:
		return nil
	case errdefs.IsNotImplemented(err):
		return status.Error(codes.FailedPrecondition, "dockerd makes checkpoints only in experimental mode; next: "+
			`write "experimental": true into /etc/docker/daemon.json, and restart dockerd`)
	case strings.Contains(err.Error(), `"criu": executable file not found`):
		return status.Error(codes.FailedPrecondition, "CRIU is not installed; next: install the package criu of this "+
			"machine's distribution")
	}
	s := status.Convert(docker.Error(err))
	return status.Errorf(s.Code(), "write the state of the processes: %s", s.Message())
}

// config describes a container as containerd does.
func config(c *index.Record, s *runtimeapi.ContainerStatus, now time.Time) *metadata.ContainerConfig {
	return &metadata.ContainerConfig{ID: c.ID, Name: c.Name, RootfsImage: c.ImageID, RootfsImageRef: s.GetImageRef(),
		RootfsImageName: s.GetImage().GetImage(), OCIRuntime: c.Host.Runtime,
		CreatedTime: time.Unix(0, c.Times.Created).UTC(), CheckpointedAt: now.UTC()}
}
