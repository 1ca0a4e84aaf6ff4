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

	taken resource.Held // Load sets it
}

// New makes a Devices that knows of no plugin.
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

// Load reads what an earlier agent kept, and the kubelet's checkpoint where there is
// nothing else or a kubelet has written it since: the node is taken over from it. What
// could be read is taken also when there is an error.
func (d *Devices) Load() error {
	kept, keptErr := d.kept.LoadAll()
	resources, readErr := checkpoint.Load[known](d.knownFile(), checkpoint.Format{Version: 1})
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
		d.taken = held(theirs.pods, d.opts.Boot)
		for uid := range d.taken {
			all[uid] = all[uid].over(theirs.pods[uid])
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
		theirErr = errors.Join(theirErr, d.keepKnown()) // it is not read again
	}
	return errors.Join(keptErr, readErr, theirErr)
}

// Taken are the devices that a kubelet had given to pods when it had the node last:
// they count more than what an earlier agent has kept.
func (d *Devices) Taken() resource.Held { return d.taken }

// Recorded are the devices that pods had when plugins answered for them, also those
// that a kubelet gave which had the node before: what pods hold, if the ledger is lost.
func (d *Devices) Recorded() resource.Held {
	d.mu.Lock()
	defer d.mu.Unlock()
	return held(d.answers, d.opts.Boot)
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
