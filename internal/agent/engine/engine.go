package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/base/capability"
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
	// SandboxImages are the images of sandboxes, if the runtime reports them. Image garbage collection must keep them,
	// since not all runtimes pin them.
	SandboxImages []string

	runtime Runtime
	choice  endpoint.Choice
	// reported has the features and handlers of the runtime. It changes with the runtime's configuration.
	reported atomic.Pointer[reported]
	rootDir  string
	classes  *object.Objects
}

// Options of Start. All are required but Absent.
type Options struct {
	Config *config.Config
	// Choice is the runtime to start or to connect to.
	Choice endpoint.Choice
	Kinds  Kinds
	// Classes finds the RuntimeClasses that pods refer to.
	Classes *object.Objects
	Metrics prometheus.Registerer
	Tracer  trace.TracerProvider
	// Absent is set for commands that only read files. Start then neither starts nor calls the runtime, and every call
	// to it fails with this error.
	Absent error
	Log    *slog.Logger
}

// Start starts or connects to the runtime, and returns when it answers.
func Start(ctx context.Context, launch Launch, o Options) (*Engine, error) {
	var err error
	e := &Engine{Traits: o.Kinds.Traits(o.Choice, o.Config), choice: o.Choice, rootDir: o.Config.RootDir,
		runtime: o.Kinds.Runtime(o.Choice, o.Config, o.Tracer, o.Log), classes: o.Classes}
	if o.Absent != nil {
		e.Driver = hierarchy.Driver(o.Config.Runtime.CgroupDriver)
		e.Client, err = cri.NewFromDialer(o.Choice.Endpoint, func(context.Context, string) (net.Conn, error) {
			return nil, o.Absent
		}, cri.Options{Log: o.Log, Registerer: o.Metrics})
		return e, err
	}
	e.Client, err = e.runtime.Connect(ctx, launch, cri.Options{
		Timeout: o.Config.Runtime.RequestTimeout, Log: o.Log, Registerer: o.Metrics,
	})
	if err != nil {
		return nil, err
	}
	return e, e.await(ctx, o.Config, o.Log)
}

// Name returns the runtime's name in container ids, such as containerd.
func (e *Engine) Name() string {
	name, _, _ := strings.Cut(e.Version.GetRuntimeName(), " ")
	return name
}

// Endpoint returns the runtime's address for other processes: unix:///path, or docker:// with a path or without. It is
// "" for the embedded runtime, which is part of this process.
func (e *Engine) Endpoint() string { return e.choice.Endpoint }

// Effective returns a configuration with the endpoint and the cgroup driver that are in use.
func (e *Engine) Effective(kc *v1beta1.KubeletConfiguration) *v1beta1.KubeletConfiguration {
	return e.choice.Effective(kc, string(e.Driver))
}

// Progress reports how far pulls are; nil if the runtime cannot say.
func (e *Engine) Progress() Progress { return e.runtime.Progress() }

// Layers measures writable layers; nil if only the CRI can say how large they are.
func (e *Engine) Layers() Layers { return e.runtime.Layers() }

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

// await waits until the runtime answers, and reads its abilities. A runtime may end between two calls, so a failure of
// any begins anew.
func (e *Engine) await(ctx context.Context, c *config.Config, log *slog.Logger) error {
	return retry.Until(ctx, retry.Doubling(100*time.Millisecond, 5*time.Second), func(ctx context.Context) (err error) {
		if e.Version, err = e.Client.Verify(ctx); err != nil {
			return err
		}
		if e.Driver, err = cgroupDriver(ctx, e.Client, c); err != nil {
			return err
		}
		return e.readFeatures(ctx)
	}, func(err error, again time.Duration) {
		log.Warn("waiting for the container runtime", "err", err, "delay", again)
	})
}

// readFeatures reads the features, handlers and sandbox images that the runtime reports.
func (e *Engine) readFeatures(ctx context.Context) error {
	r, err := e.Client.Runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return fmt.Errorf("read what the runtime can do: %w", err)
	}
	e.SetStatus(r)
	e.SandboxImages = sandboxImages(r.GetInfo()["config"])
	return nil
}

// reported holds the features and the handlers of a runtime.
type reported struct {
	features *runtimeapi.RuntimeFeatures
	handlers handlers
}

// SetStatus takes over the features and handlers from a status of the runtime. It reports whether they have changed.
func (e *Engine) SetStatus(s *runtimeapi.StatusResponse) (changed bool) {
	now := &reported{s.GetFeatures(), slices.Clone(s.GetRuntimeHandlers())}
	slices.SortFunc(now.handlers, func(a, b *runtimeapi.RuntimeHandler) int { // runtimes list them in any order
		return strings.Compare(a.GetName(), b.GetName())
	})
	before := e.reported.Swap(now)
	return before == nil || !proto.Equal(before.features, now.features) ||
		!slices.EqualFunc(before.handlers, now.handlers, func(a, b *runtimeapi.RuntimeHandler) bool {
			return proto.Equal(a, b)
		})
}

// Features returns the features that the runtime reports.
func (e *Engine) Features() *runtimeapi.RuntimeFeatures {
	if r := e.reported.Load(); r != nil {
		return r.features
	}
	return nil
}

func (e *Engine) listed() handlers {
	if r := e.reported.Load(); r != nil {
		return r.handlers
	}
	return nil
}

// HandlerFeatures returns the handlers that the runtime lists, with their features, by name. The default handler has no
// name.
func (e *Engine) HandlerFeatures() []*runtimeapi.RuntimeHandler { return e.listed() }

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
func (e *Engine) Handlers() []string { return e.listed().names() }

// RecursiveReadOnly says whether the handler that runs a pod can mount read-only recursively (KEP-3857).
func (e *Engine) RecursiveReadOnly(p *corev1.Pod) bool {
	return e.listed().features(e.handler(p)).GetRecursiveReadOnlyMounts()
}

// CheckUserns returns why a pod cannot have a user namespace of its own, or nil.
func (e *Engine) CheckUserns(p *corev1.Pod) error {
	handler := e.handler(p)
	if !e.listed().features(handler).GetUserNamespaces() {
		if handler != "" {
			return fmt.Errorf("the container runtime does not support user namespaces with its handler %s", handler)
		}
		return errors.New("the container runtime does not support user namespaces")
	}
	return userns.Check(e.rootDir, e.StateDir)
}

// CheckPrivileges returns why containers cannot be privileged, or nil. It knows nothing about the rights of a runtime
// in another process.
func (e *Engine) CheckPrivileges() error {
	if !e.InProcess {
		return nil
	}
	own, err := capability.Effective()
	if err != nil {
		return err
	}
	if lacking := own.Lacking(); len(lacking) > 0 {
		return fmt.Errorf("the agent lacks %s", strings.Join(lacking, ", "))
	}
	return nil
}

// CheckProc returns why pods with their own user namespace cannot have a /proc, or nil. It knows nothing about the
// mounts of a runtime in another process.
func (e *Engine) CheckProc() error {
	if !e.InProcess {
		return nil
	}
	return userns.CheckProc()
}

// cgroupDriver returns the cgroup driver that the runtime reports, or the configured one for a runtime that is older
// than the CRI's call RuntimeConfig.
func cgroupDriver(ctx context.Context, client *cri.Client, c *config.Config) (hierarchy.Driver, error) {
	r, err := client.Runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	switch {
	case cri.IsUnimplemented(err):
		return hierarchy.Driver(c.Runtime.CgroupDriver), nil
	case err != nil:
		return "", fmt.Errorf("read the cgroup driver of the runtime: %w", err)
	case r.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD:
		return "systemd", nil
	}
	return "cgroupfs", nil
}
