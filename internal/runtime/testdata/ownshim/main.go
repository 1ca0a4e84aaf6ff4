// Command shim is a shim of containerd's runtime API as a vendor would make it: containerd's public packages with
// options of its own. The test of runtime handlers builds it.
//
// Its options name a configuration file. That file has the path of an OCI runtime, and of a file where the shim notes
// the containers that it creates. It knows only the generic options of containerd.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	bootstrap "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/containerd/ttrpc"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func main() {
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn:   newTasks,
	})
	shim.RunShim(context.Background(), processes{manager.NewShimManager("io.containerd.berthtest.v1")})
}

// processes starts and removes processes of this shim.
type processes struct{ shim.Shim }

// Start starts the process that serves a pod. It reports that this shim makes no mounts itself.
func (p processes) Start(ctx context.Context, params *bootstrap.BootstrapParams) (*bootstrap.BootstrapResult, error) {
	result, err := p.Shim.Start(ctx, params)
	if err != nil {
		return nil, err
	}
	return result, result.AddExtension(&types.MountCapabilities{})
}

// Info returns the features of the OCI runtime.
func (p processes) Info(ctx context.Context, in io.Reader) (*types.RuntimeInfo, error) {
	content, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	var given anypb.Any
	if err := proto.Unmarshal(content, &given); err != nil {
		return nil, err
	}
	_, replaced, err := replace(&given)
	if err != nil {
		return nil, err
	}
	if content, err = proto.Marshal(replaced); err != nil {
		return nil, err
	}
	return p.Shim.Info(ctx, bytes.NewReader(content))
}

// config is the configuration file.
type config struct {
	Binary        string // of the OCI runtime
	SystemdCgroup bool
	Notes         string // file for the IDs of containers
}

// replace returns the configuration that the generic options name, and the options of the stock shim for it.
func replace(given *anypb.Any) (config, *anypb.Any, error) {
	var generic runtimeoptions.Options
	if err := typeurl.UnmarshalTo(given, &generic); err != nil {
		return config{}, nil, fmt.Errorf("read options: %w", err)
	}
	content, err := os.ReadFile(generic.ConfigPath)
	if err != nil {
		return config{}, nil, err
	}
	var c config
	if err := json.Unmarshal(content, &c); err != nil {
		return config{}, nil, fmt.Errorf("read %s: %w", generic.ConfigPath, err)
	}
	stock, err := typeurl.MarshalAnyToProto(&options.Options{BinaryName: c.Binary, SystemdCgroup: c.SystemdCgroup})
	return c, stock, err
}

// newTasks makes the task API.
func newTasks(ic *plugin.InitContext) (any, error) {
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
		return nil, errors.New("start task service: a plugin of containerd has another type")
	}
	stock, err := task.NewTaskService(ic.Context, publisher, service)
	if err != nil {
		return nil, err
	}
	return tasks{stock}, nil
}

// tasks is the stock task API with options of its own.
type tasks struct{ taskapi.TTRPCTaskService }

// RegisterTTRPC adds the API to the shim's server.
func (t tasks) RegisterTTRPC(server *ttrpc.Server) error { //nolint:unparam // as containerd's shim calls it
	taskapi.RegisterTTRPCTaskService(server, t)
	return nil
}

// Create notes a container and creates it.
func (t tasks) Create(ctx context.Context, r *taskapi.CreateTaskRequest) (*taskapi.CreateTaskResponse, error) {
	c, replaced, err := replace(r.Options)
	if err != nil {
		return nil, err
	}
	notes, err := os.OpenFile(c.Notes, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(notes, r.ID)
	if err := errors.Join(err, notes.Close()); err != nil {
		return nil, err
	}
	r.Options = replaced
	return t.TTRPCTaskService.Create(ctx, r)
}
