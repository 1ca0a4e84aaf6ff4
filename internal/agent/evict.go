package agent

import (
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/agent/pressure"
	"github.com/berth-run/berth/internal/node/eviction"
	"github.com/berth-run/berth/internal/node/eviction/alarm"
	"github.com/berth-run/berth/internal/node/eviction/facts"
	"github.com/berth-run/berth/internal/node/eviction/storage"
	"github.com/berth-run/berth/internal/node/kmsg"
	"github.com/berth-run/berth/internal/record/event"
)

// memoryPending is the time between two looks at memory and processes while pods end.
const memoryPending = 100 * time.Millisecond

// evictions are the parts that end pods when the node runs short of a resource.
type evictions struct {
	pods    *pressure.Pods
	alarm   *alarm.Alarm
	evictor *eviction.Evictor
	disk    *pressure.Disk
	storage *pressure.Storage
	limits  *storage.Limits // of local storage
	oom     *kmsg.Log       // the processes that the kernel killed
	metrics eviction.Metrics
}

// newEvictions makes the parts that evict pods.
func newEvictions(a *Agent) (e evictions, err error) {
	c, groups := a.Config, a.steps.cgroups.Containers()
	e.metrics = eviction.NewMetrics()
	e.pods = pressure.New(pressure.Options{
		Path: filepath.Join(c.RootDir, "evictions.json"), Fleet: a.tables.fleet, Observed: a.tables.observed,
		Cgroups: groups, Stops: a.stops(), Roll: a.roll(), StaticCritical: c.Sources.StaticCritical,
		Conditions: a.tables.conditions, Standalone: c.Cluster == nil, Transition: c.Node.Eviction.Transition,
		Node: event.NodeRef(c.NodeName), Events: a.records.events, Log: a.Log,
	})
	logDamage(a.Log, e.pods.Load())
	e.oom = kmsg.New(kmsg.Options{Path: kmsg.Device, Node: event.NodeRef(c.NodeName), Pods: e.pods,
		Events: a.records.events, Statuses: a.tables.stale, Log: a.Log})
	if e.alarm, err = alarm.New(groups, a.Log); err != nil {
		return e, fmt.Errorf("watch for pressure: %w", err)
	}
	e.evictor = eviction.New(eviction.Options{
		Policy: c.Node.Eviction.Of(corev1.NodeMemoryPressure, corev1.NodePIDPressure), Pending: memoryPending,
		Facts: facts.NewMachine(groups, a.machine.facts.Capacity.Memory().Value()),
		Alarm: e.alarm, Pods: e.pods, Ready: a.tables.fleet.Settled(), Metrics: e.metrics, Now: time.Now, Log: a.Log,
	})
	e.evictor.Prime()
	e.disk = pressure.NewDisk(pressure.DiskOptions{
		Pods: e.pods, Policy: c.Node.Eviction, Metrics: e.metrics, Dir: c.RootDir, CRI: a.machine.engine.Client,
		Logs: a.steps.dirs, Volumes: a.steps.volumes, Containers: a.housekeeping.garbage, Images: a.housekeeping.images,
		LogsDir: c.Pods.LogsDir, Layers: a.machine.engine.Layers(), Together: c.Disabled.Storage.SeparateDisk,
	})
	e.storage = pressure.NewStorage(e.disk)
	e.limits = storage.New(storage.Options{Pods: e.storage, Ready: a.tables.fleet.Settled(),
		Off: c.Node.Storage.Off, Log: a.Log})
	return e, nil
}
