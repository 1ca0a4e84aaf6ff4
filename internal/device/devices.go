package device

import (
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

type events interface {
	Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
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
	// Metrics may be nil.
	Metrics prometheus.Registerer
	Events  events
	Now     func() time.Time
	Log     *slog.Logger
}

// Devices are the device plugins of a node, what they offer and what they
// answered. Its methods may be called from any goroutine.
type Devices struct {
	*stock
	kept  *checkpoint.Dir[answers]
	calls calls
	// giving is held while devices are given away.
	giving sync.Mutex
	// writing is held for changing answers and their files.
	writing sync.Mutex

	mu      sync.Mutex
	answers map[types.UID]answers
	waits   map[types.UID]map[string]string // what containers wait for
}

// answers are those of a pod, by container and resource.
type answers map[string]map[corev1.ResourceName]Answer

// New makes a Devices that knows of no plugin.
func New(o Options) *Devices {
	s := newStock(o)
	if o.Metrics != nil {
		if err := s.metrics.register(o.Metrics); err != nil {
			o.Log.Error("register metrics of device plugins", "err", err)
		}
	}
	return &Devices{
		stock: s, kept: checkpoint.NewDir[answers](filepath.Join(o.State, "pods"), checkpoint.Format{Version: 1}), calls: calls{busy: map[call]chan struct{}{}},
		answers: map[types.UID]answers{}, waits: map[types.UID]map[string]string{},
	}
}

// Load reads what an earlier agent kept, or else the kubelet's checkpoint if there
// is one: the node is taken over from it. What could be read is taken also when
// there is an error.
func (d *Devices) Load() (err error) {
	kept, keptErr := d.kept.LoadAll()
	resources, readErr := checkpoint.Load[known](d.knownFile(), checkpoint.Format{Version: 1})
	var takenErr error
	if errors.Is(readErr, fs.ErrNotExist) {
		readErr = nil
		theirs := filepath.Join(d.opts.Dir, kubeletCheckpoint)
		_, statErr := os.Lstat(theirs)
		d.fresh = errors.Is(statErr, fs.ErrNotExist)
		var taken map[types.UID]answers
		taken, resources, takenErr = readKubelet(theirs, d.opts.Boot)
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
	d.restore(resources)
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid, a := range kept {
		d.answers[types.UID(uid)] = a
	}
	return errors.Join(keptErr, readErr, takenErr)
}

// Recorded are the devices that pods had when plugins answered for them, also those
// that a kubelet gave which had the node before: what pods hold, if the ledger is lost.
func (d *Devices) Recorded() resource.Held {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := resource.Held{}
	for uid, answers := range d.answers {
		recorded := resource.Allocation{Containers: map[string]resource.Given{}}
		for container, byName := range answers {
			given := resource.Given{Devices: map[corev1.ResourceName][]device.ID{}}
			for name, a := range byName {
				if a.Boot == d.opts.Boot {
					given.Devices[name] = a.ids()
				}
			}
			if !given.IsEmpty() {
				recorded.Containers[container] = given
			}
		}
		if !recorded.IsEmpty() {
			all[uid] = recorded
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
	return nodesOf(d.Inventory()[name], id)
}

// Status is the health of what a container holds (KEP-4680); nil: it holds nothing.
func (d *Devices) Status(uid types.UID, container string) []corev1.ResourceStatus {
	a, _ := d.opts.Ledger.Get(uid)
	return d.health(a.Containers[container].Devices)
}

// Steady runs f while no plugin's preference is carried out: what admission finds
// free stays free until it is booked.
func (d *Devices) Steady(f func()) {
	d.giving.Lock()
	defer d.giving.Unlock()
	f()
}

// Waiting says what the start of a container waits for, when that takes long.
func (d *Devices) Waiting(uid types.UID, container string) (message string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	message, ok = d.waits[uid][container]
	return message, ok
}
