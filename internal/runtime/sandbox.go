package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/logfile"
	"github.com/berth-run/berth/internal/runtime/handler"
	"github.com/berth-run/berth/internal/runtime/program"
	"github.com/berth-run/berth/internal/runtime/sandbox"
	"github.com/berth-run/berth/internal/runtime/tasks"
)

// sandboxes is how the pods of a runtime handler get their sandboxes and containers.
type sandboxes struct {
	controller string // of containerd, by its ID
	image      string // of pause containers, empty if no handler needs one
	shim       string // path of the program
}

// runtimes are containerd's settings of all runtime handlers by name.
func runtimes(c Config, boxes sandboxes) map[string]any {
	l := layout{c.Root, c.State}
	handlers := maps.Clone(c.Handlers)
	if handlers == nil {
		handlers = handler.Handlers{}
	}
	handlers[defaultHandler] = handler.Handler{Binary: l.program(program.Runc)}
	all := map[string]any{}
	for name, h := range handlers {
		all[name] = h.Settings(c.SystemdCgroup, boxes.controller, boxes.shim)
	}
	return all
}

// controller returns the controller of sandboxes for this machine.
func (r *Runtime) controller(h host) *sandbox.Controller {
	l := r.layout()
	return sandbox.New(sandbox.Config{
		Holder: l.program(program.Holder),
		Shim:   sandbox.Endpoint{Address: r.tasks(h).Address(), Version: taskVersion},
		Root:   l.root, State: l.state,
		SystemdCgroup: r.config.SystemdCgroup, OOMFloor: h.oomFloor, Headstart: r.headstart,
		Log: r.config.Log,
	})
}

// tasks configures the task plugin for this machine.
func (r *Runtime) tasks(h host) tasks.Config {
	l := r.layout()
	return tasks.Config{
		Program: l.program(program.Shim), Root: l.root, State: l.state, Socket: h.shim(), Events: h.events(),
		Checkpoints: l.checkpoints(), Log: r.config.Log,
		Limits: logfile.Limits{MaxSize: r.config.LogMaxSize, MaxFiles: r.config.LogMaxFiles},
	}
}

// date sets the creation time of the sandboxes of an earlier agent, which the CRI plugin lists without one.
func (s *server) date(ctx context.Context, items []*runtimeapi.PodSandbox) {
	for _, item := range items {
		if item.CreatedAt > 0 {
			continue
		}
		if at, ok := s.boxes.Created(item.Id); ok {
			item.CreatedAt = at.UnixNano()
			continue
		}
		stored, err := s.client.SandboxStore().Get(namespaces.WithNamespace(ctx, criNamespace), item.Id)
		if err == nil { // else it is being removed
			item.CreatedAt = stored.CreatedAt.UnixNano()
		}
	}
}

// Sandboxes implements network.Sandboxes.
func (s *server) Sandboxes(ctx context.Context) ([]string, error) {
	list, err := s.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(list.Items))
	for i, box := range list.Items {
		ids[i] = box.Id
	}
	return ids, nil
}

// Namespace implements network.Sandboxes. The path is in the verbose status: in the runtime spec, or in the CRI
// plugin's own record if the sandbox did not start or is from before a reboot.
func (s *server) Namespace(ctx context.Context, sandbox string) (string, error) {
	status, err := s.cri.PodSandboxStatus(namespaces.WithNamespace(ctx, criNamespace),
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox, Verbose: true})
	if err != nil {
		return "", err
	}
	var info struct {
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
		SandboxMetadata struct {
			Metadata struct{ NetNSPath string }
		}
	}
	if err := json.Unmarshal([]byte(status.Info["info"]), &info); err != nil {
		return "", fmt.Errorf("read status of sandbox %s: %w", sandbox, err)
	}
	for _, namespace := range info.RuntimeSpec.Linux.Namespaces {
		if namespace.Type == "network" {
			return namespace.Path, nil
		}
	}
	return info.SandboxMetadata.Metadata.NetNSPath, nil
}
