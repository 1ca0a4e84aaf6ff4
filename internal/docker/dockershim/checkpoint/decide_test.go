package checkpoint

import (
	"errors"
	"testing"
	"time"

	metadata "github.com/checkpoint-restore/checkpointctl/lib"
	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/container"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockershim/index"
)

func TestErrorOfTheEngineNamesTheProcesses(t *testing.T) {
	err := explained(errors.New("Error response from daemon: Cannot checkpoint container 12: criu failed"))
	want := "write the state of the processes: Cannot checkpoint container 12: criu failed"
	if s := status.Convert(err); s.Code() != codes.Unknown || s.Message() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := explained(nil); err != nil {
		t.Error(err)
	}
}

func TestConfigNamesTheImage(t *testing.T) {
	created, now := time.Unix(1, 0), time.Unix(2, 0)
	c := &index.Record{ID: "12", Name: "k8s_app", ImageID: "sha256:34", Times: index.Times{Created: created.UnixNano()},
		Host: &container.HostConfig{Runtime: "runc"}}
	s := &runtimeapi.ContainerStatus{Image: &runtimeapi.ImageSpec{Image: "app:1"}, ImageRef: "app@sha256:56"}
	want := &metadata.ContainerConfig{ID: "12", Name: "k8s_app", RootfsImage: "sha256:34", RootfsImageName: "app:1",
		RootfsImageRef: "app@sha256:56", OCIRuntime: "runc", CreatedTime: created.UTC(), CheckpointedAt: now.UTC()}
	if diff := cmp.Diff(want, config(c, s, now)); diff != "" {
		t.Error(diff)
	}
}
