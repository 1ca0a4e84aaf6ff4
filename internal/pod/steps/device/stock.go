package device

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/node/resource/device"
)

// Plugin is the state of the plugin of a resource.
type Plugin struct {
	// Served is set if the plugin is connected. Otherwise it is lost.
	Served bool
	// Since is when the plugin connected or was lost. It is the start of this agent if the plugin has not connected
	// since.
	Since time.Time
}

// supply is the state of one resource. It is lost if plugin is nil.
type supply struct {
	devices []device.Device // as the plugin last listed them, sorted by id
	plugin  *plugin
	since   time.Time
	expiry  *time.Timer
}

// savedResources is the stored form of the resources.
type savedResources struct {
	Resources map[corev1.ResourceName][]device.Device `json:"resources"`
}

// stock holds the devices that plugins offer. Its methods may be called from any goroutine.
type stock struct {
	opts    Options
	metrics metrics
	arrived chan *plugin // new plugins, for Run to follow
	// saving is held while the file is written. mu is free meanwhile.
	saving sync.Mutex

	// saved is called after the file was written.
	saved func()

	// fresh is set if no state was found on disk. Load sets it.
	fresh bool

	mu        sync.Mutex
	supplies  map[corev1.ResourceName]*supply
	inventory device.Inventory // replaced at each change
	changed   chan struct{}    // closed at each change
}

func newStock(o Options) *stock {
	return &stock{opts: o, metrics: newMetrics(), arrived: make(chan *plugin),
		supplies:  map[corev1.ResourceName]*supply{},
		inventory: device.Inventory{}, changed: make(chan struct{})}
}

func (d *stock) resourcesFile() string { return filepath.Join(d.opts.State, "resources.json") }

// restore loads the resources that the previous agent or a kubelet stored. All of them start as lost.
func (d *stock) restore(k savedResources) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, devices := range k.Resources {
		slices.SortFunc(devices, func(a, b device.Device) int { return cmp.Compare(a.ID, b.ID) })
		s := &supply{devices: devices, since: d.opts.Now()}
		d.supplies[name] = s
		d.expire(name, s)
	}
	d.refresh()
}

// Fresh reports whether neither an agent nor a kubelet has stored device state here: the machine is new, perhaps a
// replacement with an old name.
func (d *stock) Fresh() bool { return d.fresh }

// Settled stores a marker, so that Fresh is false for the next agent. Call it after everything that depends on Fresh is
// done.
func (d *stock) Settled() {
	if err := d.saveResources(); err != nil {
		d.opts.Log.Error("save resources of device plugins failed; retrying after the next change", "err", err)
	}
}

// Inventory returns the devices that plugins offer now. The caller must not change it.
func (d *stock) Inventory() device.Inventory {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inventory
}

// Plugins returns the state of the plugin of each resource in the inventory.
func (d *stock) Plugins() map[corev1.ResourceName]Plugin {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[corev1.ResourceName]Plugin, len(d.supplies))
	for name, s := range d.supplies {
		all[name] = Plugin{Served: s.plugin != nil, Since: s.since}
	}
	return all
}

// serving returns the plugin of a resource, nil if it is not connected, and which of these devices are unhealthy.
// changed is closed at the next change of either.
func (d *stock) serving(name corev1.ResourceName, ids []device.ID) (p *plugin, bad []device.ID,
	changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.supplies[name]; s != nil && s.plugin != nil {
		p, bad = s.plugin, unhealthy(s.devices, ids)
	}
	return p, bad, d.changed
}

// health returns the health of the devices that a container holds.
func (d *stock) health(given map[corev1.ResourceName][]device.ID) []corev1.ResourceStatus {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []corev1.ResourceStatus
	for _, name := range slices.Sorted(maps.Keys(given)) {
		s := d.supplies[name]
		if s == nil {
			s = &supply{}
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

// refresh rebuilds the inventory and wakes everything that waits for a change. The caller holds mu and calls announce
// afterwards.
func (d *stock) refresh() {
	inv := make(device.Inventory, len(d.supplies))
	for name, s := range d.supplies {
		if inv[name] = s.devices; s.plugin == nil {
			inv[name] = lost(s.devices)
		}
	}
	d.inventory = inv
	close(d.changed)
	d.changed = make(chan struct{})
}

// announce stores the resources and reports the change of one resource to admission and to the pods that hold its
// devices.
func (d *stock) announce(name corev1.ResourceName) {
	if err := d.saveResources(); err != nil {
		d.opts.Log.Error("save resources of device plugins failed; retrying after the next change", "err", err)
	}
	for uid, a := range d.opts.Ledger.All() {
		for _, given := range a.Containers {
			if len(given.Devices[name]) > 0 {
				d.opts.Affected(uid)
				break
			}
		}
	}
	d.opts.Changed()
}

// saveResources stores the resources for the next agent.
func (d *stock) saveResources() error {
	d.saving.Lock()
	defer d.saving.Unlock()
	d.mu.Lock()
	k := savedResources{Resources: make(map[corev1.ResourceName][]device.Device, len(d.supplies))}
	for name, s := range d.supplies {
		k.Resources[name] = s.devices
	}
	d.mu.Unlock()
	if err := os.MkdirAll(d.opts.State, 0o700); err != nil {
		return err
	}
	if err := checkpoint.Save(d.resourcesFile(), checkpoint.Format{Version: 1}, k); err != nil {
		return err
	}
	d.saved()
	return nil
}

// healthy returns the ids of the healthy devices of each resource. A lost resource has an empty list.
func (d *stock) healthy() map[string][]device.ID {
	all := map[string][]device.ID{}
	for name, devices := range d.Inventory() {
		ids := []device.ID{}
		for _, x := range devices {
			if x.Healthy {
				ids = append(ids, x.ID)
			}
		}
		all[string(name)] = ids
	}
	return all
}

// expire removes a lost resource after Grace. Devices that pods still hold stay, so that they have them when the plugin
// returns. The caller holds mu.
func (d *stock) expire(name corev1.ResourceName, s *supply) {
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
