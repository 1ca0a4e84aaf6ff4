package handler

import (
	"errors"
	"log/slog"
	"os/exec"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Handler is a runtime handler, which a RuntimeClass of Kubernetes names.
type Handler struct {
	// Binary is the path of the OCI runtime. It may be installed later.
	Binary string
	// Root is the directory of the OCI runtime's state, or empty for runc's.
	Root                                 string
	NoPivotRoot, NoNewKeyring            bool
	PodAnnotations, ContainerAnnotations []string
	PrivilegedWithoutHostDevices         bool
}

// Settings are containerd's settings of a handler, without those that all handlers have.
func (h Handler) Settings(systemdCgroup bool) map[string]any {
	options := map[string]any{"BinaryName": h.Binary, "SystemdCgroup": systemdCgroup}
	if h.Root != "" {
		options["Root"] = h.Root
	}
	if h.NoPivotRoot {
		options["NoPivotRoot"] = true
	}
	if h.NoNewKeyring {
		options["NoNewKeyring"] = true
	}
	all := map[string]any{"options": options}
	if len(h.PodAnnotations) > 0 {
		all["pod_annotations"] = h.PodAnnotations
	}
	if h.PrivilegedWithoutHostDevices {
		all["privileged_without_host_devices"] = true
	}
	return all
}

// Handlers are runtime handlers by name.
type Handlers map[string]Handler

// Check returns why the handler of a new sandbox cannot run containers, or nil. Each new sandbox asks again, so that an
// OCI runtime can be installed while the agent runs.
func (all Handlers) Check(req any) error {
	run, ok := req.(*runtimeapi.RunPodSandboxRequest)
	if !ok {
		return nil
	}
	name := run.GetRuntimeHandler()
	h, ok := all[name]
	if !ok {
		return nil
	}
	if err := h.find(); err != nil {
		return status.Errorf(codes.FailedPrecondition, "the OCI runtime of handler %q cannot be used: %v; next: "+
			"install %s, or correct runtimes.%s.binary in the configuration", name, err, h.Binary, name)
	}
	return nil
}

// find returns why the program cannot be run, or nil.
func (h Handler) find() error {
	_, err := exec.LookPath(h.Binary)
	if failed, ok := errors.AsType[*exec.Error](err); ok {
		return failed.Err
	}
	return err
}

// Warn logs the handlers that cannot be used now.
func (all Handlers) Warn(log *slog.Logger) {
	for name, h := range all {
		if err := h.find(); err != nil {
			log.Warn("cannot use the OCI runtime of a handler, its pods wait until it is installed", "handler", name,
				"binary", h.Binary, "err", err)
		}
	}
}
