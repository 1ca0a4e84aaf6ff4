package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/cgroup/hierarchy"
	"github.com/berth-run/berth/internal/pod/steps/userns"
	"github.com/berth-run/berth/internal/runtime/network"
)

// Engine is the container runtime of this node after its start, with the properties that it reported.
type Engine struct {
	Traits
	Client *cri.Client
	// Version is the runtime's version when the agent began.
	Version *runtimeapi.VersionResponse
	// Driver says how cgroups are made: cgroupfs or systemd.
	Driver hierarchy.Driver
	// Features are the features that the runtime reports.
	Features *runtimeapi.RuntimeFeatures
	// SandboxImages are the images of sandboxes, if the runtime reports them. Image garbage collection must keep them,
	// since not all runtimes pin them.
	SandboxImages []string

	runtime  Runtime
	choice   endpoint.Choice
	handlers handlers
	rootDir  string
	classes  *object.Objects
}

// Options of Start. All are required.
type Options struct {
	Config *config.Config
	Kinds  Kinds
	// Classes finds the RuntimeClasses that pods refer to.
	Classes *object.Objects
	Metrics prometheus.Registerer
	Tracer  trace.TracerProvider
	Log     *slog.Logger
}

// Start starts or connects to the runtime, and returns when it answers.
func Start(ctx context.Context, launch Launch, o Options) (*Engine, error) {
	choice, err := endpoint.Choose(ctx, o.Config, o.Log)
	if err != nil {
		return nil, err
	}
	e := &Engine{choice: choice, runtime: o.Kinds.Runtime(choice, o.Config, o.Tracer, o.Log),
		rootDir: o.Config.RootDir, classes: o.Classes}
	e.Traits = e.runtime.Traits()
	e.Client, err = e.runtime.Connect(ctx, launch, cri.Options{
		Timeout: o.Config.Runtime.RequestTimeout, Log: o.Log, Registerer: o.Metrics,
	})
	if err != nil {
		return nil, err
	}
	if err := e.await(ctx, o.Log); err != nil {
		return nil, err
	}
	e.Driver = cgroupDriver(ctx, e.Client, o.Config, o.Log)
	return e, e.readFeatures(ctx)
}

// Name returns the runtime's name in container ids, such as containerd.
func (e *Engine) Name() string {
	name, _, _ := strings.Cut(e.Version.GetRuntimeName(), " ")
	return name
}

// Endpoint returns the runtime's address for other processes: unix:///path. It is "" for the embedded runtime, which is
// part of this process.
func (e *Engine) Endpoint() string { return e.choice.Endpoint }

// Effective returns a configuration with the endpoint and the cgroup driver that are in use.
func (e *Engine) Effective(kc *v1beta1.KubeletConfiguration) *v1beta1.KubeletConfiguration {
	return e.choice.Effective(kc, string(e.Driver))
}

// Progress reports how far pulls are; nil if the runtime cannot say.
func (e *Engine) Progress() Progress { return e.runtime.Progress() }

// Overlaps has a row for each range of pods that overlaps with another network of the machine. It is nil if the runtime
// cannot say.
func (e *Engine) Overlaps() *network.Overlaps { return e.runtime.Overlaps() }

// RemoveNetwork removes the interfaces and rules of the runtime's pod network from the machine.
func (e *Engine) RemoveNetwork(ctx context.Context) error { return e.runtime.RemoveNetwork(ctx) }

// Export writes images as an archive.
func (e *Engine) Export(ctx context.Context, archive io.Writer, names ...string) error {
	return e.runtime.Export(ctx, archive, names...)
}

// Import puts the images of an archive into the runtime, and returns them as the runtime lists them, each once. A
// containerd outside this process learns of them from an event, so Import waits until the runtime lists them.
func (e *Engine) Import(ctx context.Context, archive io.Reader) ([]*runtimeapi.Image, error) {
	loaded, err := e.runtime.Import(ctx, archive)
	if err != nil {
		return nil, err
	}
	return e.list(ctx, loaded)
}

// await waits until the runtime answers.
func (e *Engine) await(ctx context.Context, log *slog.Logger) error {
	return retry.Until(ctx, retry.Doubling(100*time.Millisecond, 5*time.Second), func(ctx context.Context) (err error) {
		e.Version, err = e.Client.Verify(ctx)
		return err
	}, func(err error, again time.Duration) {
		log.Warn("waiting for the container runtime", "err", err, "again in", again)
	})
}

// readFeatures reads the features, handlers and sandbox images that the runtime reports.
func (e *Engine) readFeatures(ctx context.Context) error {
	r, err := e.Client.Runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return fmt.Errorf("read what the runtime can do: %w", err)
	}
	e.Features = r.GetFeatures()
	e.handlers = r.GetRuntimeHandlers()
	e.SandboxImages = sandboxImages(r.GetInfo()["config"])
	return nil
}

// sandboxImages returns the images of sandboxes from the configuration that containerd shows in its status. Other
// runtimes show none.
func sandboxImages(config string) []string {
	var c struct {
		SandboxImage string `json:"sandboxImage"`
	}
	if json.Unmarshal([]byte(config), &c) != nil || c.SandboxImage == "" {
		return nil
	}
	return []string{c.SandboxImage}
}

// handlers are the handlers that a runtime lists, such as runc or kata. It is nil if the runtime lists none.
type handlers []*runtimeapi.RuntimeHandler

// names returns the names of all handlers.
func (h handlers) names() (names []string) {
	for _, one := range h {
		names = append(names, one.GetName())
	}
	return names
}

// features returns the features of a handler, or nil for an unknown one. The default handler is "".
func (h handlers) features(name string) *runtimeapi.RuntimeHandlerFeatures {
	for _, one := range h {
		if one.GetName() == name {
			return one.GetFeatures()
		}
	}
	return nil
}

// handler returns the handler that runs a pod: the one of its RuntimeClass. It is "", the default handler, for a pod
// without a class or with a class that does not exist.
func (e *Engine) handler(p *corev1.Pod) string {
	if p.Spec.RuntimeClassName == nil || *p.Spec.RuntimeClassName == "" {
		return ""
	}
	class, err := e.classes.RuntimeClass(*p.Spec.RuntimeClassName)
	if err != nil {
		return ""
	}
	return class.Handler
}

// Handlers returns the names of the runtime's handlers; nil if it does not say.
func (e *Engine) Handlers() []string { return e.handlers.names() }

// RecursiveReadOnly says whether the handler that runs a pod can mount read-only recursively (KEP-3857).
func (e *Engine) RecursiveReadOnly(p *corev1.Pod) bool {
	return e.handlers.features(e.handler(p)).GetRecursiveReadOnlyMounts()
}

// CheckUserns returns why a pod cannot have a user namespace of its own, or nil.
func (e *Engine) CheckUserns(p *corev1.Pod) error {
	handler := e.handler(p)
	if !e.handlers.features(handler).GetUserNamespaces() {
		if handler != "" {
			return fmt.Errorf("the container runtime does not support user namespaces with its handler %s", handler)
		}
		return errors.New("the container runtime does not support user namespaces")
	}
	return userns.Check(e.rootDir, e.StateDir)
}

// cgroupDriver returns the cgroup driver that the runtime reports, or the configured one for a runtime that is older
// than the CRI's call RuntimeConfig.
func cgroupDriver(ctx context.Context, client *cri.Client, c *config.Config, log *slog.Logger) hierarchy.Driver {
	r, err := client.Runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if err != nil {
		if !cri.IsUnimplemented(err) {
			log.Warn("cannot read the cgroup driver from the runtime, using the configured one", "err", err,
				"driver", c.Runtime.CgroupDriver)
		}
		return hierarchy.Driver(c.Runtime.CgroupDriver)
	}
	if r.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD {
		return "systemd"
	}
	return "cgroupfs"
}
