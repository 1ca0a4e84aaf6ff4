package supply

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/topology"
	"github.com/berth-run/berth/internal/pod/steps/device/record"
)

// Grace is how long the resources of a lost plugin still count as capacity. The kubelet waits as long
// (endpointStopGracePeriod).
const Grace = 5 * time.Minute

// Plugin is the state of the plugin of a resource.
type Plugin struct {
	// Served is set if the plugin is connected. Otherwise it is lost.
	Served bool
	// Since is when the plugin connected or was lost. It is the start of this agent if the plugin has not connected
	// since.
	Since time.Time
}

// state is the state of one resource. It is lost if plugin is nil.
type state struct {
	devices []device.Device // as the plugin last listed them, sorted by id
	plugin  *Client
	since   time.Time
	expiry  *time.Timer
}

// records stores the devices for the next agent.
type records interface {
	SaveResources(all record.Resources, healthy map[string][]device.ID) error
}

// ledger holds the allocations of pods.
type ledger interface{ All() resource.Held }

// Statuses are computed again after a change.
type Statuses interface {
	// Mark says that the status of a pod must be computed again. It must not block.
	Mark(types.UID)
}

// Admission admits the pods that wait for devices.
type Admission interface {
	// Reconsider repeats admission for the pods that wait for it. It must not block.
	Reconsider()
}

// Options are the dependencies of a Supply.
type Options struct {
	// Dir is the directory of the registration socket and of the plugins' sockets.
	Dir string
	// Machine is the set of the machine's NUMA nodes.
	Machine topology.Nodes
	Records records
	Ledger  ledger
	// Admission looks at the inventory again after each change.
	Admission Admission
	// Statuses show the health of the devices that pods hold.
	Statuses Statuses
	// Metrics may be nil.
	Metrics prometheus.Registerer
	Now     func() time.Time
	Log     *slog.Logger
}

// Supply has the device plugins of a node and the devices that they offer. Its methods may be called from any
// goroutine.
type Supply struct {
	opts          Options
	registrations *prometheus.CounterVec
	arrived       chan *Client // new plugins, for Run to follow
	// saving is held while the file is written. mu is free meanwhile.
	saving sync.Mutex

	mu        sync.Mutex
	supplies  map[corev1.ResourceName]*state
	inventory device.Inventory // replaced at each change
	changed   wake.Broadcast   // of the inventory
}

// New returns a Supply without plugins.
func New(o Options) *Supply {
	d := &Supply{opts: o, arrived: make(chan *Client), supplies: map[corev1.ResourceName]*state{},
		inventory: device.Inventory{},
		registrations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_device_plugin_registration_total",
			Help: "Cumulative number of device plugin registrations, by resource name.",
		}, []string{"resource_name"}),
	}
	if o.Metrics != nil {
		if err := o.Metrics.Register(d.registrations); err != nil {
			o.Log.Error("cannot register the metric of device plugins' registrations, continuing without it",
				"err", err)
		}
	}
	return d
}

// Restore adds the resources that the previous agent or a kubelet stored. All of them start as lost. Call it before
// Run.
func (d *Supply) Restore(all record.Resources) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, devices := range all {
		s := &state{devices: devices, since: d.opts.Now()}
		d.supplies[name] = s
		d.expire(name, s)
	}
	d.refresh()
}

// Save stores the devices for the next agent. The machine does not count as new afterwards.
func (d *Supply) Save() {
	if err := d.save(); err != nil {
		d.opts.Log.Error("save resources of device plugins failed; retrying after the next change", "err", err)
	}
}

// Inventory returns the devices that plugins offer now. The caller must not change it.
func (d *Supply) Inventory() device.Inventory {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inventory
}

// Changed wakes after every change of the inventory.
func (d *Supply) Changed() *wake.Broadcast { return &d.changed }

// Plugins returns the state of the plugin of each resource in the inventory.
func (d *Supply) Plugins() map[corev1.ResourceName]Plugin {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[corev1.ResourceName]Plugin, len(d.supplies))
	for name, s := range d.supplies {
		all[name] = Plugin{Served: s.plugin != nil, Since: s.since}
	}
	return all
}

// Serving returns the plugin of a resource, nil if it is not connected, and which of these devices are unhealthy.
// changed is closed at the next change of either.
func (d *Supply) Serving(name corev1.ResourceName, ids []device.ID) (p *Client, bad []device.ID,
	changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.supplies[name]; s != nil && s.plugin != nil {
		p, bad = s.plugin, unhealthy(s.devices, ids)
	}
	return p, bad, d.changed.C()
}

// Health returns the health of the devices that a container holds (KEP-4680), nil if it holds none.
func (d *Supply) Health(given map[corev1.ResourceName][]device.ID) []corev1.ResourceStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []corev1.ResourceStatus
	for _, name := range slices.Sorted(maps.Keys(given)) {
		s := d.supplies[name]
		if s == nil {
			s = &state{}
		}
		status := corev1.ResourceStatus{Name: name}
		for _, id := range slices.Sorted(slices.Values(given[name])) {
			status.Resources = append(status.Resources,
				corev1.ResourceHealth{ResourceID: corev1.ResourceID(id),
					Health: health(s.devices, s.plugin != nil, id)})
		}
		all = append(all, status)
	}
	return all
}

// Nodes returns the NUMA nodes of a device. It returns 0 if they are unknown.
func (d *Supply) Nodes(name corev1.ResourceName, id device.ID) topology.Nodes {
	return nodesOf(d.Inventory()[name], id)
}

// refresh rebuilds the inventory and wakes everything that waits for a change. The caller holds mu and calls announce
// afterwards.
func (d *Supply) refresh() {
	inv := make(device.Inventory, len(d.supplies))
	for name, s := range d.supplies {
		if inv[name] = s.devices; s.plugin == nil {
			inv[name] = lost(s.devices)
		}
	}
	d.inventory = inv
	d.changed.Wake()
}

// announce stores the resources and reports the change of one resource to admission and to the pods that hold its
// devices.
func (d *Supply) announce(name corev1.ResourceName) {
	d.Save()
	for uid, a := range d.opts.Ledger.All() {
		for _, given := range a.Containers {
			if len(given.Devices[name]) > 0 {
				d.opts.Statuses.Mark(uid)
				break
			}
		}
	}
	d.opts.Admission.Reconsider()
}

func (d *Supply) save() error {
	d.saving.Lock()
	defer d.saving.Unlock()
	d.mu.Lock()
	all, inventory := make(record.Resources, len(d.supplies)), d.inventory
	for name, s := range d.supplies {
		all[name] = s.devices
	}
	d.mu.Unlock()
	return d.opts.Records.SaveResources(all, healthy(inventory))
}

// healthy returns the ids of the healthy devices of each resource. A lost resource has an empty list.
func healthy(all device.Inventory) map[string][]device.ID {
	byName := map[string][]device.ID{}
	for name, devices := range all {
		ids := []device.ID{}
		for _, x := range devices {
			if x.Healthy {
				ids = append(ids, x.ID)
			}
		}
		byName[string(name)] = ids
	}
	return byName
}

// expire removes a lost resource after Grace. Devices that pods still hold stay, so that they have them when the plugin
// returns. The caller holds mu.
func (d *Supply) expire(name corev1.ResourceName, s *state) {
	s.expiry = time.AfterFunc(Grace, func() {
		theirs := d.opts.Ledger.All().Devices()[name]
		d.mu.Lock()
		before, still := len(s.devices), d.supplies[name] == s && s.plugin == nil
		if still {
			s.devices = slices.DeleteFunc(slices.Clone(s.devices), func(x device.Device) bool {
				return !theirs.Has(x.ID)
			})
			if len(s.devices) == 0 {
				delete(d.supplies, name)
			} else {
				d.expire(name, s)
			}
			d.refresh()
		}
		left := len(s.devices)
		d.mu.Unlock()
		if still && (left == 0 || left < before) {
			d.opts.Log.Warn("device plugin did not return, its devices are removed", "resource", name, "after", Grace,
				"still held", left)
			d.announce(name)
		}
	})
}
