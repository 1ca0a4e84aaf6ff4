package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/agent/endpoint"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/cgroup"
	"github.com/berth-run/berth/internal/pod/steps/container/render"
	"github.com/berth-run/berth/internal/pod/steps/userns"
	"github.com/berth-run/berth/internal/runtime"
)

// engine is the container runtime in use: the one in this process, or one
// behind a socket.
type engine struct {
	embedded *runtime.Runtime // nil for an external one
	client   *cri.Client
	choice   endpoint.Choice
	version  *runtimeapi.VersionResponse
	driver   cgroup.Driver
	// features are what the runtime says it can do.
	features *runtimeapi.RuntimeFeatures
	handlers handlers
	// sandboxImages are what the runtime makes sandboxes of, as far as it tells.
	// Not all pin them.
	sandboxImages []string
}

// startEngine starts or connects to the runtime and waits until it answers.
func startEngine(ctx context.Context, launch func(func(context.Context) error), c *config.Config,
	reg prometheus.Registerer, tracer trace.TracerProvider, log *slog.Logger) (*engine, error) {
	choice, err := endpoint.Choose(ctx, c, log)
	if err != nil {
		return nil, err
	}
	e := &engine{choice: choice}
	opts := cri.Options{Timeout: c.Runtime.RequestTimeout, Log: log, Registerer: reg}
	if e.choice.Endpoint == "" {
		embedded := RuntimeConfig(c, log)
		embedded.Tracer = tracer
		e.embedded = runtime.New(embedded)
		launch(e.embedded.Run)
		conn, err := e.embedded.Conn(ctx)
		if err != nil {
			return nil, err
		}
		if e.client, err = cri.NewFromConn("the embedded runtime", conn, opts); err != nil {
			return nil, err
		}
		if c.Embedded.CRIListen != "" {
			listener, err := runtime.Listen(c.Embedded.CRIListen)
			if err != nil {
				return nil, err
			}
			launch(func(ctx context.Context) error { return e.embedded.Serve(ctx, listener) })
		}
	} else {
		if flag := c.Embedded.Given(); flag != "" {
			return nil,
				fmt.Errorf(
					"%s is about the embedded runtime, but the runtime is %s (%s): leave out the flag, or write "+
						"containerRuntimeEndpoint: %s into the file of --config", flag, e.choice.Endpoint,
					e.choice.Reason, config.EmbeddedRuntime)
		}
		if e.client, err = cri.New(e.choice.Endpoint, opts); err != nil {
			return nil, err
		}
	}
	if err := e.await(ctx, log); err != nil {
		return nil, err
	}
	e.driver = cgroupDriver(ctx, e.client, c, log)
	return e, e.askFeatures(ctx)
}

// await asks until the runtime answers. An external one may come up later than
// the agent.
func (e *engine) await(ctx context.Context, log *slog.Logger) (err error) {
	for delay := 100 * time.Millisecond; ; delay = min(2*delay, 5*time.Second) {
		if e.version, err = e.client.Verify(ctx); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		log.Warn("waiting for the container runtime", "err", err, "again in", delay)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
	}
}

func (e *engine) askFeatures(ctx context.Context) error {
	r, err := e.client.Runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return fmt.Errorf("ask the runtime what it can do: %w", err)
	}
	e.features = r.GetFeatures()
	e.handlers = r.GetRuntimeHandlers()
	e.sandboxImages = sandboxImages(r.GetInfo()["config"])
	return nil
}

// sandboxImages reads them from what containerd tells of its configuration. Others
// tell nothing of the kind.
func sandboxImages(config string) []string {
	var c struct {
		SandboxImage string `json:"sandboxImage"`
	}
	if json.Unmarshal([]byte(config), &c) != nil || c.SandboxImage == "" {
		return nil
	}
	return []string{c.SandboxImage}
}

// handlers are those that a runtime says it has; nil when it does not say.
type handlers []*runtimeapi.RuntimeHandler

// names of all; nil when the runtime does not say.
func (h handlers) names() (names []string) {
	for _, one := range h {
		names = append(names, one.GetName())
	}
	return names
}

// features are what a handler can do; "" is the default one.
func (h handlers) features(name string) *runtimeapi.RuntimeHandlerFeatures {
	for _, one := range h {
		if one.GetName() == name {
			return one.GetFeatures()
		}
	}
	return nil
}

// handlerOf is what runs a pod: that of its RuntimeClass, "" for the default one
// and while the class is not there.
func handlerOf(p *corev1.Pod, classes *object.Objects) string {
	if p.Spec.RuntimeClassName == nil || *p.Spec.RuntimeClassName == "" {
		return ""
	}
	class, err := classes.RuntimeClass(*p.Spec.RuntimeClassName)
	if err != nil {
		return ""
	}
	return class.Handler
}

// renderNode is what rendering has to know of the node for a pod: that and what
// the pod's handler can do.
func (e *engine) renderNode(n render.Node, classes *object.Objects) func(*corev1.Pod) render.Node {
	return func(p *corev1.Pod) render.Node {
		of := n
		of.RecursiveReadOnly = e.handlers.features(handlerOf(p, classes)).GetRecursiveReadOnlyMounts()
		return of
	}
}

// checkUserns says why pods of a handler cannot have user namespaces of their own.
func (e *engine) checkUserns(c *config.Config, handler string) error {
	if !e.handlers.features(handler).GetUserNamespaces() {
		if handler != "" {
			return fmt.Errorf("the container runtime does not support user namespaces with its handler %s", handler)
		}
		return errors.New("the container runtime does not support user namespaces")
	}
	run := "/"
	if e.embedded != nil { // another runtime looks after its own directories
		run = c.RunDir
	}
	return userns.Check(c.RootDir, run)
}

// cgroupDriver is the one the runtime says, else the configured one: runtimes
// older than CRI's RuntimeConfig do not say.
func cgroupDriver(ctx context.Context, client *cri.Client, c *config.Config, log *slog.Logger) cgroup.Driver {
	r, err := client.Runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if err != nil {
		if !cri.IsUnimplemented(err) {
			log.Warn("ask the runtime for its cgroup driver", "err", err, "used instead", c.Runtime.CgroupDriver)
		}
		return cgroup.Driver(c.Runtime.CgroupDriver)
	}
	if r.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD {
		return "systemd"
	}
	return "cgroupfs"
}

// RuntimeConfig is the embedded runtime of an agent's configuration. Each root
// has directories, a bridge and so a network of its own.
func RuntimeConfig(c *config.Config, log *slog.Logger) runtime.Config {
	rc := runtime.Config{
		Root:          filepath.Join(c.RootDir, "runtime"),
		State:         filepath.Join(c.RunDir, "runtime"),
		PodCIDRs:      c.Runtime.PodCIDRs,
		CNIConfDir:    c.Embedded.CNIConfDir,
		CNIOnly:       c.Embedded.PodNetwork == config.PodNetworkCNI,
		SystemdCgroup: c.Runtime.CgroupDriver == "systemd",
		RegistryDir:   registryDir(c.RootDir),
		Log:           log.With("part", "runtime"),
	}
	if c.RootDir != config.DefaultRootDir {
		sum := sha256.Sum256([]byte(c.RootDir))
		rc.Bridge = "berth-" + hex.EncodeToString(sum[:4])
	}
	return rc
}

// podRuntime is the runtime as the statuses of pods show it.
type podRuntime struct {
	*engine
	classes *object.Objects
}

// Name is the runtime's name in container ids.
func (r podRuntime) Name() string { return r.shortName() }

// RecursiveReadOnly says whether a pod's handler can mount read-only recursively.
func (r podRuntime) RecursiveReadOnly(p *corev1.Pod) bool {
	return r.handlers.features(handlerOf(p, r.classes)).GetRecursiveReadOnlyMounts()
}

// shortName is the runtime's name in container ids, such as containerd.
func (e *engine) shortName() string {
	name, _, _ := strings.Cut(e.version.GetRuntimeName(), " ")
	return name
}

// splitID takes a container id of a status apart: containerd://0123.
func splitID(s string) (runtime, id string) {
	runtime, id, _ = strings.Cut(s, "://")
	return runtime, id
}
