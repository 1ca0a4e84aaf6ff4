package runtime

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/log"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
)

const (
	shimName = "containerd-shim-runc-v2"
	// modeEnv set to modeShim makes a process a shim. The name it was started under does that as
	// well, but is lost when a shim starts its server half from os.Executable.
	modeEnv  = "BERTH_MODE"
	modeShim = "shim"
)

// ShimMain runs the shim if this process was started as one, that is under the shim's name or by a
// shim, and reports whether it did. main must call it before anything else and return if it is true:
// containerd executes the shim for questions, too, and an answer from the agent would be another
// agent.
func ShimMain(args []string) (handled bool) {
	named := len(args) > 0 && filepath.Base(args[0]) == shimName
	if !named && os.Getenv(modeEnv) != modeShim {
		return false
	}
	runShim(args)
	return true
}

// runShim serves one pod's containers, or answers one question about them. It exits the process when
// it fails.
func runShim(args []string) {
	_ = os.Setenv(modeEnv, modeShim)
	// The shim's flags are the process's; those that linked packages registered are not.
	flag.CommandLine = flag.NewFlagSet(args[0], flag.ExitOnError)
	_ = log.SetLevel(log.WarnLevel.String())
	// The plugins of the server, linked into the same binary, are none of the shim's.
	registry.Reset()
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn:   newTaskService,
	})
	shim.RunShim(context.Background(), manager.NewShimManager("io.containerd.runc.v2"))
}

// newTaskService makes containerd's stock task service, the shim's API.
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
	return task.NewTaskService(ic.Context, publisher, service)
}
