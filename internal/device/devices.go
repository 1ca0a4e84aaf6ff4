package device

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/checkpoint"
	"github.com/berth-run/berth/internal/resource"
	"github.com/berth-run/berth/internal/resource/device"
	"github.com/berth-run/berth/internal/resource/topology"
)

// Grace is how long the resource of a lost plugin still counts as capacity, as
// under the kubelet (endpointStopGracePeriod).
const Grace = 5 * time.Minute

// ledger is what pods hold. SetDevices exchanges what a container holds of one
// resource for as many others, and fails when one of those is another pod's.
type ledger interface {
	Get(types.UID) (resource.Allocation, bool)
	All() resource.Held
	SetDevices(uid types.UID, container string, name corev1.ResourceName, ids []device.ID) error
}

// Options are what Devices needs from its surroundings.
type Options struct {
	// Dir is where plugins register and have their sockets.
	Dir string
	// State is the directory of what is kept.
	State string
	// Machine has the NUMA nodes that there are.
	Machine topology.Nodes
	// Boot is the kernel's boot id.
	Boot   string
	Ledger ledger
	// Changed is told when the inventory has changed. It must not block.
	Changed func()
	// Affected is told of a pod when the health of a device that it holds, or what
	// it waits for, has changed. It must not block.
	Affected func(types.UID)
	Now      func() time.Time
	Log      *slog.Logger
}

// Plugin is what is known of the plugin of a resource.
type Plugin struct {
	// Served says that it is connected; otherwise it is lost.
	Served bool
	// Since is when it came, or went. For one that has not come since this agent
	// began it is when the agent began.
	Since time.Time
}

// Devices are the device plugins of a node, what they offer and what they
// answered. Its methods may be called from any goroutine.
type Devices struct {
	opts  Options
	kept  *checkpoint.Dir[answers]
	calls calls
	// saving is held for writing a file, which takes too long for mu.
	saving sync.Mutex

	mu        sync.Mutex
	supplies  map[corev1.ResourceName]*supply
	inventory device.Inventory // a new one at each change
	changed   chan struct{}    // closed at each change
	answers   map[types.UID]answers
	waits     map[types.UID]map[string]string // what containers wait for
}

// supply is one resource. Without a plugin it is lost.
type supply struct {
	devices []device.Device // as last told, by id
	plugin  *plugin
	since   time.Time
	expiry  *time.Timer
}

// answers are those of a pod, by container and resource.
type answers map[string]map[corev1.ResourceName]Answer

// known is what is kept of the resources.
type known struct {
	Resources map[corev1.ResourceName][]device.Device `json:"resources"`
}

// New makes a Devices that knows of no plugin.
func New(o Options) *Devices {
	return &Devices{
		opts: o, kept: checkpoint.NewDir[answers](filepath.Join(o.State, "pods"), checkpoint.Format{Version: 1}), calls: calls{busy: map[call]chan struct{}{}},
		supplies: map[corev1.ResourceName]*supply{}, inventory: device.Inventory{}, changed: make(chan struct{}),
		answers: map[types.UID]answers{}, waits: map[types.UID]map[string]string{},
	}
}

func (d *Devices) knownFile() string { return filepath.Join(d.opts.State, "resources.json") }

// Load reads what an earlier agent kept, or else the kubelet's checkpoint if there
// is one: the node is taken over from it. What could be read is taken also when
// there is an error.
func (d *Devices) Load() (err error) {
	kept, keptErr := d.kept.LoadAll()
	resources, readErr := checkpoint.Load[known](d.knownFile(), checkpoint.Format{Version: 1})
	var takenErr error
	if errors.Is(readErr, fs.ErrNotExist) {
		readErr = nil
		var taken map[types.UID]answers
		taken, resources, takenErr = readKubelet(filepath.Join(d.opts.Dir, kubeletCheckpoint), d.opts.Boot)
		for uid, a := range taken {
			if _, own := kept[string(uid)]; !own {
				kept[string(uid)] = a
				takenErr = errors.Join(takenErr, d.kept.Save(string(uid), a))
			}
		}
		if len(taken)+len(resources.Resources) > 0 {
			defer func() { err = errors.Join(err, d.keepKnown()) }() // it is not read again
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid, a := range kept {
		d.answers[types.UID(uid)] = a
	}
	for name, devices := range resources.Resources {
		slices.SortFunc(devices, func(a, b device.Device) int { return cmp.Compare(a.ID, b.ID) })
		s := &supply{devices: devices, since: d.opts.Now()}
		d.supplies[name] = s
		d.expire(name, s)
	}
	d.refresh()
	return errors.Join(keptErr, readErr, takenErr)
}

// Inventory is what plugins offer now. It is not to be changed.
func (d *Devices) Inventory() device.Inventory {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inventory
}

// Plugins are those of the resources in the inventory.
func (d *Devices) Plugins() map[corev1.ResourceName]Plugin {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[corev1.ResourceName]Plugin, len(d.supplies))
	for name, s := range d.supplies {
		all[name] = Plugin{Served: s.plugin != nil, Since: s.since}
	}
	return all
}

// Recorded are the devices for which plugins have answered, by pod, container and
// resource; also those of the kubelet that had the node before.
func (d *Devices) Recorded() map[types.UID]map[string]map[corev1.ResourceName][]device.ID {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[types.UID]map[string]map[corev1.ResourceName][]device.ID, len(d.answers))
	for uid, pod := range d.answers {
		all[uid] = map[string]map[corev1.ResourceName][]device.ID{}
		for container, byName := range pod {
			all[uid][container] = map[corev1.ResourceName][]device.ID{}
			for name, a := range byName {
				all[uid][container][name] = a.ids()
			}
		}
	}
	return all
}

// Users are the pods of which answers are kept.
func (d *Devices) Users() []types.UID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.answers))
}

// Nodes are the NUMA nodes of a device that a container holds, also of one that no
// plugin tells of any more; 0: not known.
func (d *Devices) Nodes(uid types.UID, container string, name corev1.ResourceName, id device.ID) topology.Nodes {
	d.mu.Lock()
	defer d.mu.Unlock()
	if nodes, ok := d.answers[uid][container][name].Nodes[id]; ok {
		return nodes
	}
	return nodesOf(d.inventory[name], id)
}

// Status is the health of what a container holds (KEP-4680); nil: it holds nothing.
func (d *Devices) Status(uid types.UID, container string) []corev1.ResourceStatus {
	a, _ := d.opts.Ledger.Get(uid)
	given := a.Containers[container].Devices
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []corev1.ResourceStatus
	for _, name := range slices.Sorted(maps.Keys(given)) {
		s := d.supplies[name]
		status := corev1.ResourceStatus{Name: name}
		for _, id := range slices.Sorted(slices.Values(given[name])) {
			h := corev1.ResourceHealthStatusUnknown
			if s != nil {
				h = health(s.devices, s.plugin != nil, id)
			}
			status.Resources = append(status.Resources, corev1.ResourceHealth{ResourceID: corev1.ResourceID(id), Health: h})
		}
		all = append(all, status)
	}
	return all
}

// Waiting says what the start of a container waits for, when that takes long.
func (d *Devices) Waiting(uid types.UID, container string) (message string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	message, ok = d.waits[uid][container]
	return message, ok
}

// refresh makes the inventory anew and wakes who waits for a change. The caller
// holds mu, and tells of it afterwards.
func (d *Devices) refresh() {
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
func (d *Devices) supplied(name corev1.ResourceName) {
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
func (d *Devices) keepKnown() error {
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
	return checkpoint.Save(d.knownFile(), checkpoint.Format{Version: 1}, k)
}

// expire takes a lost resource away after Grace. The caller holds mu.
func (d *Devices) expire(name corev1.ResourceName, s *supply) {
	s.expiry = time.AfterFunc(Grace, func() {
		d.mu.Lock()
		gone := d.supplies[name] == s && s.plugin == nil
		if gone {
			delete(d.supplies, name)
			d.refresh()
		}
		d.mu.Unlock()
		if gone {
			d.opts.Log.Warn("device plugin has not come back: its resource is gone", "resource", name, "after", Grace)
			d.supplied(name)
		}
	})
}
