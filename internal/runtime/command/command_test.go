package command

import (
	"context"
	"os"
	"testing"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A command whose container is removed meanwhile leaves no pipes, although containerd's client keeps them when it
// cannot delete the process.
func TestPipesOfRemovedContainer(t *testing.T) {
	client, err := containerd.New("", containerd.WithServices(containerd.WithContainerStore(oneContainer{}),
		containerd.WithTaskClient(removedTask{})))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	runner, err := New(client, "test", dir)
	if err != nil {
		t.Fatal(err)
	}
	req := &runtimeapi.ExecSyncRequest{ContainerId: "main", Cmd: []string{"true"}}
	if _, err := runner.run(t.Context(), req, 1); !errdefs.IsNotFound(errgrpc.ToNative(err)) {
		t.Errorf("command in a removed container: %v, want a not-found error", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// oneContainer has one container.
type oneContainer struct{ containers.Store }

// Get implements containers.Store.
func (oneContainer) Get(context.Context, string) (containers.Container, error) {
	spec, err := typeurl.MarshalAny(&specs.Spec{Process: &specs.Process{}})
	return containers.Container{ID: "main", Spec: spec}, err
}

// removedTask is the task of a container that is removed once a command has started in it.
type removedTask struct{ tasks.TasksClient }

var errRemoved = errgrpc.ToGRPC(errdefs.ErrNotFound)

// Get implements tasks.TasksClient.
func (removedTask) Get(_ context.Context, r *tasks.GetRequest, _ ...grpc.CallOption) (*tasks.GetResponse, error) {
	if r.GetExecID() != "" {
		return nil, errRemoved
	}
	return &tasks.GetResponse{Process: &task.Process{ID: "main", Status: task.Status_RUNNING}}, nil
}

// Exec implements tasks.TasksClient.
func (removedTask) Exec(context.Context, *tasks.ExecProcessRequest, ...grpc.CallOption) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// Start implements tasks.TasksClient.
func (removedTask) Start(context.Context, *tasks.StartRequest, ...grpc.CallOption) (*tasks.StartResponse, error) {
	return &tasks.StartResponse{Pid: 1}, nil
}

// Wait implements tasks.TasksClient.
func (removedTask) Wait(context.Context, *tasks.WaitRequest, ...grpc.CallOption) (*tasks.WaitResponse, error) {
	return nil, errRemoved
}

// Kill implements tasks.TasksClient.
func (removedTask) Kill(context.Context, *tasks.KillRequest, ...grpc.CallOption) (*emptypb.Empty, error) {
	return nil, errRemoved
}
