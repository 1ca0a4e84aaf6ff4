// Command shim is the shim of the versions that had one for each pod: containerd's, with the mends that Berth had made.
// TestUpgradeFromStock upgrades from it.
package main

import (
	"context"
	"errors"
	goruntime "runtime"

	bootstrap "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/log"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/containerd/ttrpc"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"
)

func main() {
	_ = log.SetLevel(log.WarnLevel.String())
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn:   newTaskService,
	})
	shim.RunShim(context.Background(), shimManager{manager.NewShimManager("io.containerd.runc.v2")})
}

// shimManager is the stock manager of the shim's processes, except that a started shim says of
// itself that it makes no mounts. Otherwise containerd executes "-info" without options, and then the stock manager
// needs a runc in PATH.
type shimManager struct{ shim.Shim }

// Start starts the server half of the shim.
func (m shimManager) Start(ctx context.Context, params *bootstrap.BootstrapParams) (*bootstrap.BootstrapResult, error) {
	result, err := m.Shim.Start(ctx, params)
	if err != nil {
		return nil, err
	}
	return result, result.AddExtension(&types.MountCapabilities{})
}

// newTaskService makes the shim's API.
func newTaskService(ic *plugin.InitContext) (any, error) {
	events, err := ic.GetByID(plugins.EventPlugin, "publisher")
	if err != nil {
		return nil, err
	}
	stop, err := ic.GetByID(plugins.InternalPlugin, "shutdown")
	if err != nil {
		return nil, err
	}
	publisher, isPublisher := events.(shim.Publisher)
	service, isShutdown := stop.(shutdown.Service)
	if !isPublisher || !isShutdown {
		return nil, errors.New("start task service: containerd's publisher or shutdown plugin has another type")
	}
	logger := logrus.StandardLogger()
	logger.SetFormatter(shimLog{logger.Formatter})
	stock, err := task.NewTaskService(ic.Context, publisher, service)
	if err != nil {
		return nil, err
	}
	return taskService{stock}, nil
}

// taskService is the stock task service, except for Kill and that an exited container has a process:
// its init, until a caller has read its exit code. An agent that comes back takes a container without processes for a
// container whose creation was cut short, and drops it with its exit code.
type taskService struct{ taskapi.TTRPCTaskService }

// RegisterTTRPC adds the service to the shim's server.
func (s taskService) RegisterTTRPC(server *ttrpc.Server) error { //nolint:unparam // as containerd's shim calls it
	taskapi.RegisterTTRPCTaskService(server, s)
	return nil
}

// Pids lists a container's processes.
func (s taskService) Pids(ctx context.Context, request *taskapi.PidsRequest) (*taskapi.PidsResponse, error) {
	response, err := s.TTRPCTaskService.Pids(ctx, request)
	if err != nil || len(response.Processes) > 0 {
		return response, err
	}
	state, err := s.State(ctx, &taskapi.StateRequest{ID: request.ID})
	if err == nil && state.Status == tasktypes.Status_STOPPED {
		response.Processes = []*tasktypes.ProcessInfo{{Pid: state.Pid}}
	}
	return response, nil
}

// Kill signals a process. A command executed in a container leads a session and a process group of
// its own, which runc makes: It gets SIGKILL when its time is over. The signal is for the whole group, so that
// processes that it started do not stay in the container.
func (s taskService) Kill(ctx context.Context, request *taskapi.KillRequest) (*emptypb.Empty, error) {
	if request.ExecID != "" && request.Signal == uint32(unix.SIGKILL) {
		state, err := s.State(ctx, &taskapi.StateRequest{ID: request.ID, ExecID: request.ExecID})
		if err == nil && state.Status == tasktypes.Status_RUNNING && state.Pid > 0 {
			_ = unix.Kill(-int(state.Pid), unix.SIGKILL) // one that fails has ended
		}
	}
	return s.TTRPCTaskService.Kill(ctx, request)
}

// shimLog is the format of the shim's log, which comes out at the agent's stderr.
type shimLog struct{ logrus.Formatter }

// Format renders an entry. The watch for OOM kills on cgroup v1 takes the shim's shutdown for an
// error and tries again without end: it is ended here.
func (l shimLog) Format(entry *logrus.Entry) ([]byte, error) {
	if entry.Message == "cgroups: epoll wait" {
		goruntime.Goexit()
	}
	return l.Formatter.Format(entry)
}
