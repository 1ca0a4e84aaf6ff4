package reset

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/agent/former"
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
)

// endPods ends all pods of the root directory, and removes what they and the runtime's network have on the machine.
func endPods(ctx context.Context, o Options) error {
	objects := object.New(nil) // a reset reads none
	return former.With(ctx, former.Options(o), objects, patience, func(ctx context.Context, e *engine.Engine) error {
		return makeParts(o, e, objects).end(ctx)
	})
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
	pods, err := former.Sandboxes(ctx, former.Options(x.o), x.engine, left, 0)
	for _, uid := range pods {
		err = errors.Join(err, x.volumes.Remove(ctx, uid), x.cgroups.Remove(ctx, uid), x.dirs.Remove(ctx, uid),
			x.dirs.RemoveLogs(ctx, uid))
	}
	return errors.Join(err, x.cgroups.RemoveLevels())
}
