package device

import (
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/topology"
	kubelet "github.com/berth-run/berth/internal/pod/steps/device/checkpoint"
	"github.com/berth-run/berth/internal/record/event"
)

// Grace is how long the resources of a lost plugin still count as capacity. The kubelet waits as long
// (endpointStopGracePeriod).
const Grace = 5 * time.Minute

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
	// Changed is called after each change of the inventory. It must not block.
	Changed func()
	// Affected is called with the UID of a pod after the health of one of its devices changed, or the message about
	// what it waits for. It must not block.
	Affected func(types.UID)
	// Metrics may be nil.
	Metrics prometheus.Registerer
	Events  event.Sink
	Now     func() time.Time
	Log     *slog.Logger
}

// Devices manages the device plugins of a node, the devices that they offer and their answers. Its methods may be
// called from any goroutine.
type Devices struct {
	*stock
	kept  *checkpoint.Dir[answers]
	calls calls
	// exchanging is held while devices are exchanged in the ledger, and while admission chooses devices.
	exchanging sync.Mutex
	// writing is held while answers and their files change.
	writing sync.Mutex

	mu      sync.Mutex
	answers map[types.UID]answers
	waits   map[types.UID]map[string]string // what containers wait for, by pod and container

	fromKubelet resource.Held // set by Load
}

// New returns a Devices without plugins. Call Load before Run.
func New(o Options) *Devices {
	s := newStock(o)
	if o.Metrics != nil {
		if err := s.metrics.register(o.Metrics); err != nil {
			o.Log.Error("register metrics of device plugins", "err", err)
		}
	}
	d := &Devices{
		stock: s, kept: checkpoint.NewDir[answers](filepath.Join(o.State, "pods"), checkpoint.Format{Version: 1}),
		calls:   calls{busy: map[call]chan struct{}{}},
		answers: map[types.UID]answers{}, waits: map[types.UID]map[string]string{},
	}
	s.saved = (&mirror{d: d}).write
	return d
}

// Load reads the files of the previous agent. It reads the kubelet's checkpoint too if there are no such files or a
// kubelet has written the checkpoint since. Everything that could be read is in use even if Load returns an error.
func (d *Devices) Load() error {
	kept, keptErr := d.kept.LoadAll()
	resources, readErr := checkpoint.Load[savedResources](d.resourcesFile(), checkpoint.Format{Version: 1})
	none := errors.Is(readErr, fs.ErrNotExist)
	if none {
		readErr, resources.Resources = nil, map[corev1.ResourceName][]device.Device{}
	}
	theirs, theirErr := readKubelet(filepath.Join(d.opts.Dir, kubelet.Name), d.opts.Boot)
	d.fresh = none && theirs.none
	all := map[types.UID]answers{}
	for uid, a := range kept {
		all[types.UID(uid)] = a
	}
	take := none || !theirs.ours
	if take {
		d.fromKubelet = held(theirs.pods, d.opts.Boot)
		for uid := range d.fromKubelet {
			all[uid] = all[uid].merge(theirs.pods[uid])
			theirErr = errors.Join(theirErr, d.kept.Save(string(uid), all[uid]))
		}
		for name, devices := range theirs.known.Resources {
			if _, own := resources.Resources[name]; !own {
				resources.Resources[name] = devices
			}
		}
	}
	d.mu.Lock()
	d.answers = all
	d.mu.Unlock()
	d.restore(resources)
	if take && len(theirs.pods)+len(theirs.known.Resources) > 0 {
		theirErr = errors.Join(theirErr, d.saveResources()) // so that the next start does not read the checkpoint again
	}
	return errors.Join(keptErr, readErr, theirErr)
}

// FromKubelet returns the devices that a kubelet allocated to pods since an agent last ran here. They count more than
// the agent's own records.
func (d *Devices) FromKubelet() resource.Held { return d.fromKubelet }

// Recorded returns the devices of all answers that are stored, including a kubelet's. The ledger is rebuilt from them
// if it is lost.
func (d *Devices) Recorded() resource.Held {
	d.mu.Lock()
	defer d.mu.Unlock()
	return held(d.answers, d.opts.Boot)
}

// Users returns the pods whose answers are stored.
func (d *Devices) Users() []types.UID {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.answers))
}

// Nodes returns the NUMA nodes of a device that a container holds, even if no plugin lists the device any more. It
// returns 0 if they are unknown.
func (d *Devices) Nodes(uid types.UID, container string, name corev1.ResourceName, id device.ID) topology.Nodes {
	d.mu.Lock()
	defer d.mu.Unlock()
	if nodes, ok := d.answers[uid][container][name].Nodes[id]; ok {
		return nodes
	}
	return nodesOf(d.Inventory()[name], id)
}

// Status returns the health of the devices that a container holds (KEP-4680), nil if it holds none.
func (d *Devices) Status(uid types.UID, container string) []corev1.ResourceStatus {
	a, _ := d.opts.Ledger.Get(uid)
	return d.health(a.Containers[container].Devices)
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
	d.mu.Lock()
	defer d.mu.Unlock()
	message, ok = d.waits[uid][container]
	return message, ok
}
