package handler

import (
	"errors"
	"log/slog"
	"os/exec"

	"github.com/containerd/containerd/v2/pkg/shim"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/logfile"
)

// Handler is a runtime handler, which a RuntimeClass of Kubernetes names.
type Handler struct {
	// Shim is the name of a shim of its own, such as io.containerd.kata.v2. Empty: Berth's shim calls Binary.
	Shim string
	// Binary is the path of the OCI runtime, or of the shim. It may be installed later. Empty: the program of the shim
	// is in PATH.
	Binary string
	// Root is the directory of the OCI runtime's state, or empty for runc's.
	Root                                 string
	NoPivotRoot, NoNewKeyring            bool
	ConfigPath, TypeURL                  string // options of a shim, empty for its defaults
	PodAnnotations, ContainerAnnotations []string
	PrivilegedWithoutHostDevices         bool
}

const (
	// runcShim is the name of the shim for OCI runtimes. Berth's shim has the same API.
	runcShim = "io.containerd.runc.v2"
	// pauseController is containerd's own sandbox controller. It starts a pause container. A shim then makes the pod's
	// surroundings, such as a virtual machine.
	pauseController = "podsandbox"
)

// Settings are containerd's settings of a handler. controller is the sandbox controller of handlers with Berth's shim,
// and own is the path of that shim.
func (h Handler) Settings(systemdCgroup bool, controller, own string) map[string]any {
	all := map[string]any{"disable_pause_image_pull": true}
	if h.Shim == "" {
		all["runtime_type"], all["runtime_path"], all["sandboxer"] = runcShim, own, controller
		all["options"] = h.runcOptions(systemdCgroup)
		// The shim finds the log of a container in its annotation.
		all["container_annotations"] = append([]string{logfile.Annotation}, h.ContainerAnnotations...)
	} else {
		all["runtime_type"], all["sandboxer"] = h.Shim, pauseController
		if h.Binary != "" {
			all["runtime_path"] = h.Binary
		}
		if options := h.shimOptions(); len(options) > 0 {
			all["options"] = options
		}
		if len(h.ContainerAnnotations) > 0 {
			all["container_annotations"] = h.ContainerAnnotations
		}
	}
	if len(h.PodAnnotations) > 0 {
		all["pod_annotations"] = h.PodAnnotations
	}
	if h.PrivilegedWithoutHostDevices {
		all["privileged_without_host_devices"] = true
	}
	return all
}

// runcOptions are the options of Berth's shim.
func (h Handler) runcOptions(systemdCgroup bool) map[string]any {
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
	return options
}

// shimOptions are the options of another shim.
func (h Handler) shimOptions() map[string]any {
	options := map[string]any{}
	if h.ConfigPath != "" {
		options["ConfigPath"] = h.ConfigPath
	}
	if h.TypeURL != "" {
		options["TypeUrl"] = h.TypeURL
	}
	return options
}

// program is the path of the handler's program, or its name in PATH.
func (h Handler) program() string {
	if h.Binary != "" || h.Shim == "" {
		return h.Binary
	}
	return shim.BinaryName(h.Shim)
}

// kind names the handler's program for messages.
func (h Handler) kind() string {
	if h.Shim != "" {
		return "shim"
	}
	return "OCI runtime"
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
		return status.Errorf(codes.FailedPrecondition, "the %s of handler %q cannot be used: %v; next: "+
			"install %s, or correct runtimes.%s.binary in the configuration", h.kind(), name, err, h.program(), name)
	}
	return nil
}

// find returns why the program cannot be run, or nil.
func (h Handler) find() error {
	_, err := exec.LookPath(h.program())
	if failed, ok := errors.AsType[*exec.Error](err); ok {
		return failed.Err
	}
	return err
}

// Shims are the names of the handlers with a shim of their own.
func (all Handlers) Shims() (names []string) {
	for name, h := range all {
		if h.Shim != "" {
			names = append(names, name)
		}
	}
	return names
}

// Warn logs the handlers that cannot be used now.
func (all Handlers) Warn(log *slog.Logger) {
	for name, h := range all {
		if err := h.find(); err != nil {
			log.Warn("cannot use the "+h.kind()+" of a handler, its pods wait until it is installed", "handler", name,
				"binary", h.program(), "err", err)
		}
	}
}
