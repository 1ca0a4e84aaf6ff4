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

// Plugin is what is known of the plugin of a resource.
type Plugin struct {
	// Served says that it is connected; otherwise it is lost.
	Served bool
	// Since is when it came, or went. For one that has not come since this agent
	// began it is when the agent began.
	Since time.Time
}

// supply is one resource. Without a plugin it is lost.
type supply struct {
	devices []device.Device // as last told, by id
	plugin  *plugin
	since   time.Time
	expiry  *time.Timer
}

// known is what is kept of the resources.
type known struct {
	Resources map[corev1.ResourceName][]device.Device `json:"resources"`
}

// stock is what plugins offer. Its methods may be called from any goroutine.
type stock struct {
	opts    Options
	metrics metrics
	come    chan *plugin // that Run is to follow
	// saving is held for writing the file, which takes too long for mu.
	saving sync.Mutex

	// saved is called when the file has been written.
	saved func()

	// fresh: nothing was kept. Load sets it.
	fresh bool

	mu        sync.Mutex
	supplies  map[corev1.ResourceName]*supply
	inventory device.Inventory // a new one at each change
	changed   chan struct{}    // closed at each change
}

func newStock(o Options) *stock {
	return &stock{opts: o, metrics: newMetrics(), come: make(chan *plugin), supplies: map[corev1.ResourceName]*supply{},
		inventory: device.Inventory{}, changed: make(chan struct{})}
}

func (d *stock) knownFile() string { return filepath.Join(d.opts.State, "resources.json") }

// restore takes over what an earlier agent, or a kubelet, knew: all of it is lost.
func (d *stock) restore(k known) {
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

// Fresh says that neither an agent nor a kubelet has kept anything of devices here:
// the machine is a new one, maybe in the place of one of its name.
func (d *stock) Fresh() bool { return d.fresh }

// Settled notes that who needs to know of Fresh does. The next agent is not.
func (d *stock) Settled() {
	if err := d.keepKnown(); err != nil {
		d.opts.Log.Error("keep what device plugins offer", "err", err)
	}
}

// Inventory is what plugins offer now. It is not to be changed.
func (d *stock) Inventory() device.Inventory {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inventory
}

// Plugins are those of the resources in the inventory.
func (d *stock) Plugins() map[corev1.ResourceName]Plugin {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[corev1.ResourceName]Plugin, len(d.supplies))
	for name, s := range d.supplies {
		all[name] = Plugin{Served: s.plugin != nil, Since: s.since}
	}
	return all
}

// serving is the plugin of a resource, nil when it is not there, and which of these
// devices are not healthy. changed is closed when that may be otherwise.
func (d *stock) serving(name corev1.ResourceName, ids []device.ID) (p *plugin, bad []device.ID,
	changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.supplies[name]; s != nil && s.plugin != nil {
		p, bad = s.plugin, ill(s.devices, ids)
	}
	return p, bad, d.changed
}

// health is that of what a container holds.
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

// refresh makes the inventory anew and wakes who waits for a change. The caller
// holds mu, and tells of it afterwards.
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

// supplied tells of a change of one resource: for the next start, to admission,
// and to the pods that hold any of it.
func (d *stock) supplied(name corev1.ResourceName) {
	if err := d.keepKnown(); err != nil {
		d.opts.Log.Error("keep what device plugins offer", "err", err)
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

// keepKnown writes down what the next agent is to know of the resources.
func (d *stock) keepKnown() error {
	d.saving.Lock()
	defer d.saving.Unlock()
	d.mu.Lock()
	k := known{Resources: make(map[corev1.ResourceName][]device.Device, len(d.supplies))}
	for name, s := range d.supplies {
		k.Resources[name] = s.devices
	}
	d.mu.Unlock()
	if err := os.MkdirAll(d.opts.State, 0o700); err != nil {
		return err
	}
	if err := checkpoint.Save(d.knownFile(), checkpoint.Format{Version: 1}, k); err != nil {
		return err
	}
	d.saved()
	return nil
}

// healthy are the ids of the resources' healthy devices, none of those that are lost.
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

// expire takes a lost resource away after Grace, but for the devices that pods still
// hold: they are theirs when the plugin comes back. The caller holds mu.
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
			d.opts.Log.Warn("device plugin has not come back: its devices are gone", "resource", name, "after", Grace,
				"still held", left)
			d.supplied(name)
		}
	})
}
