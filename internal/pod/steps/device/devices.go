package device

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/topology"
	"github.com/berth-run/berth/internal/pod/steps/device/record"
	"github.com/berth-run/berth/internal/pod/steps/device/supply"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline/wait"
)

// ledger holds the allocations of pods. SetDevices replaces the devices of one resource that a container holds with as
// many others. It fails if another pod holds one of them.
type ledger interface {
	Get(types.UID) (resource.Allocation, bool)
	All() resource.Held
	SetDevices(uid types.UID, container string, name corev1.ResourceName, ids []device.ID) error
}

// Options are the dependencies of Devices.
type Options struct {
	// Dir is the directory of the registration socket and of the plugins' sockets.
	Dir string
	// State is the directory of the stored answers and device lists.
	State string
	// Machine is the set of the machine's NUMA nodes.
	Machine topology.Nodes
	// Boot is the kernel's boot id.
	Boot   string
	Ledger ledger
	// Admission looks at the inventory again after each change.
	Admission supply.Admission
	// Statuses show the health of devices, and what containers wait for.
	Statuses supply.Statuses
	// Metrics may be nil.
	Metrics prometheus.Registerer
	Events  event.Sink
	Now     func() time.Time
	Log     *slog.Logger
}

// Devices calls the device plugins for the pods of a node. Its methods may be called from any goroutine.
type Devices struct {
	opts    Options
	supply  *supply.Supply
	records *record.Records
	metrics metrics
	calls   lock.Keyed // equal calls run one after the other
	waits   *wait.Waits
	// exchanging is held while devices are exchanged in the ledger, and while admission chooses devices.
	exchanging sync.Mutex
}

// New returns a Devices without plugins. Call Load before the supply runs.
func New(o Options) *Devices {
	d := &Devices{opts: o, metrics: newMetrics(), waits: wait.New(o.Statuses),
		records: record.New(record.Options{Plugins: o.Dir, State: o.State, Boot: o.Boot, Log: o.Log})}
	d.supply = supply.New(supply.Options{Dir: o.Dir, Machine: o.Machine, Records: d.records, Ledger: o.Ledger,
		Admission: o.Admission, Statuses: o.Statuses, Metrics: o.Metrics, Now: o.Now, Log: o.Log})
	if o.Metrics != nil {
		if err := d.metrics.register(o.Metrics); err != nil {
			o.Log.Error("cannot register the metrics of device plugins, continuing without them", "err", err)
		}
	}
	return d
}

// Load reads the files of the previous agent or of a kubelet. Everything that could be read is in use even if Load
// returns an error.
func (d *Devices) Load() error {
	resources, err := d.records.Load()
	d.supply.Restore(resources)
	return err
}

// Supply returns the plugins and the devices that they offer.
func (d *Devices) Supply() *supply.Supply { return d.supply }

// Records returns the stored records of devices.
func (d *Devices) Records() *record.Records { return d.records }

// Inventory returns the devices that plugins offer now. The caller must not change it.
func (d *Devices) Inventory() device.Inventory { return d.supply.Inventory() }

// Fresh reports whether the machine is new: neither an agent nor a kubelet has stored device state here.
func (d *Devices) Fresh() bool { return d.records.Fresh() }

// Settled stores the present state, so that Fresh is false for the next agent. Call it after everything that depends on
// Fresh is done.
func (d *Devices) Settled() { d.supply.Save() }

// Nodes returns the NUMA nodes of a device that a container holds, even if no plugin lists the device any more. It
// returns 0 if they are unknown.
func (d *Devices) Nodes(uid types.UID, container string, name corev1.ResourceName, id device.ID) topology.Nodes {
	if nodes, ok := d.records.Answers(uid)[container][name].Nodes[id]; ok {
		return nodes
	}
	return d.supply.Nodes(name, id)
}

// Status returns the health of the devices that a container holds (KEP-4680), nil if it holds none.
func (d *Devices) Status(uid types.UID, container string) []corev1.ResourceStatus {
	a, _ := d.opts.Ledger.Get(uid)
	return d.supply.Health(a.Containers[container].Devices)
}

// WithoutExchanges runs f while no device is exchanged at a plugin's preference. A device that admission finds free
// stays free until f has allocated it.
func (d *Devices) WithoutExchanges(f func()) {
	d.exchanging.Lock()
	defer d.exchanging.Unlock()
	f()
}

// Waiting returns the cause of the wait of a container start that has waited for at least a second.
func (d *Devices) Waiting(uid types.UID, container string) (message string, ok bool) {
	return d.waits.Message(uid, container)
}
