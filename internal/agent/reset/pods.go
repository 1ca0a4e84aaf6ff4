package reset

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/agent/foundation"
	"github.com/berth-run/berth/internal/agent/leftover"
	"github.com/berth-run/berth/internal/agent/volumes"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/cgroup"
	"github.com/berth-run/berth/internal/pod/steps/claim"
	"github.com/berth-run/berth/internal/pod/steps/device/record"
	"github.com/berth-run/berth/internal/pod/steps/poddir"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/podlog"
)

// patience is how long a reset waits for the runtime to answer, and how long it tries to remove a sandbox.
const patience = 30 * time.Second

var errNoRuntime = fmt.Errorf(
	"the container runtime has not answered for %v: start it, or correct containerRuntimeEndpoint, and reset again",
	patience)

// endPods ends all pods of the root directory, and removes what they and the runtime's network have on the machine.
func endPods(ctx context.Context, o Options) error {
	objects := object.New(nil) // a reset reads none
	return withRuntime(ctx, o, objects, func(ctx context.Context, e *engine.Engine) error {
		return makeParts(o, e, objects).end(ctx)
	})
}

// endAbandoned ends the pods that the embedded runtime still has although the configuration names another runtime: an
// earlier agent had another configuration. It leaves their volumes and directories to endPods.
func endAbandoned(ctx context.Context, o Options) error {
	if o.Config.Runtime.Endpoint == "" || o.Config.Runtime.Endpoint == endpoint.Embedded {
		return nil
	}
	used, err := endpoint.EmbeddedUsed(o.Config.RootDir)
	if err != nil || !used {
		return err
	}
	earlier := *o.Config
	earlier.Runtime.Endpoint = endpoint.Embedded
	o.Config = &earlier
	return withRuntime(ctx, o, object.New(nil), func(ctx context.Context, e *engine.Engine) error {
		_, err := endSandboxes(ctx, e, nil, podlog.LinkDir(earlier.Pods.LogsDir))
		return err
	})
}

// withRuntime starts the runtime, works with it, stops it again, and removes its network.
func withRuntime(ctx context.Context, o Options, objects *object.Objects,
	work func(context.Context, *engine.Engine) error) error {
	alive, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	base := foundation.New(ctx, func() { cancel(nil) })
	e, err := startRuntime(alive, cancel, base, o, objects)
	if err == nil {
		err = work(alive, e)
	}
	err = errors.Join(err, base.Stop())
	if e != nil {
		err = errors.Join(err, e.RemoveNetwork(ctx))
	}
	return err
}

// startRuntime starts the runtime, and waits for its answer.
func startRuntime(ctx context.Context, cancel context.CancelCauseFunc, base *foundation.Foundation, o Options,
	objects *object.Objects) (*engine.Engine, error) {
	late := time.AfterFunc(patience, func() { cancel(errNoRuntime) })
	e, err := engine.Start(ctx, base.Launch, engine.Options{Config: o.Config, Kinds: o.Runtimes, Classes: objects,
		Metrics: prometheus.NewRegistry(), Tracer: noop.NewTracerProvider(), Log: o.Log})
	if !late.Stop() {
		return e, errNoRuntime
	}
	if err != nil {
		return e, fmt.Errorf("start the container runtime: %w", err)
	}
	return e, nil
}

// parts are the parts of an agent that remove what pods have.
type parts struct {
	o       Options
	engine  *engine.Engine
	dirs    *poddir.Dirs
	cgroups *cgroup.Cgroups
	volumes *volume.Volumes
	claims  *claim.Claims
	devices *record.Records
}

// makeParts makes the parts, and reads what the last agent has recorded. Damaged records are left out.
func makeParts(o Options, e *engine.Engine, objects *object.Objects) parts {
	c := o.Config
	events := event.New(event.Options{Host: c.NodeName, Log: o.Log}) // only in memory: the records go too
	x := parts{
		o: o, engine: e,
		dirs:    poddir.New(poddir.Config{Root: c.RootDir, Logs: c.Pods.LogsDir, Events: events}),
		cgroups: cgroup.New(cgroup.Config{Driver: e.Driver, Root: c.Node.CgroupRoot, Events: events, Log: o.Log}),
		claims: claim.New(claim.Config{Root: c.RootDir, Node: &corev1.Node{}, Events: events, Now: time.Now,
			Log: o.Log}),
		devices: record.New(record.Options{Plugins: filepath.Join(c.RootDir, "device-plugins"),
			State: filepath.Join(c.RootDir, "devices"), Log: o.Log}),
	}
	x.volumes, _ = volumes.New(volumes.Options{Config: c, Claims: x.claims, Objects: objects,
		Drivers: []volume.Kind{csi.Left{Root: c.RootDir}}, Events: events, Log: o.Log})
	_, deviceErr := x.devices.Load()
	if err := errors.Join(x.claims.Load(), deviceErr, x.volumes.Adopt()); err != nil {
		o.Log.Error("cannot read a file of an earlier agent, continuing without it", "err", err)
	}
	return x
}

// end ends all pods of the root directory.
func (x parts) end(ctx context.Context) error {
	left, err := leftover.Finder{
		Orphans: []leftover.Owner{x.dirs, x.volumes, x.cgroups},
		Users:   []leftover.User{x.claims, x.devices},
	}.Pods()
	if err != nil {
		return err
	}
	pods, err := endSandboxes(ctx, x.engine, left, podlog.LinkDir(x.o.Config.Pods.LogsDir))
	for _, uid := range pods {
		err = errors.Join(err, x.volumes.Remove(ctx, uid), x.cgroups.Remove(ctx, uid), x.dirs.Remove(ctx, uid),
			x.dirs.RemoveLogs(ctx, uid))
	}
	return errors.Join(err, x.cgroups.RemoveLevels())
}
