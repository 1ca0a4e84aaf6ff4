package dra

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline/wait"
)

// marker marks the statuses that must be computed again.
type marker interface {
	// Mark says that the status of a pod must be computed again. It must not block.
	Mark(types.UID)
}

// Options are the dependencies of Claims.
type Options struct {
	// Client reads ResourceClaims and deletes ResourceSlices with a node's rights. It is nil for an agent without a
	// cluster, whose pods have no claims.
	Client kubernetes.Interface
	// Node is the name of this node.
	Node string
	// Dir is the agent's root directory. It must exist before the first pod is set up.
	Dir string
	// Boot is the kernel's boot id.
	Boot string
	// Desired has the newest versions of the pods. A claim may be created and reserved after its pod, and only the
	// newer pod status names it. Optional.
	Desired *store.Table[types.UID, *pod.Pod]
	// StandsIn reports that the API server was never reachable since the agent started and its stored objects are used
	// instead. Then claims that pods had before count as theirs. Optional.
	StandsIn *atomic.Bool
	// Statuses show the health of devices, and what pods wait for.
	Statuses marker
	Events   event.Sink
	// Metrics may be nil.
	Metrics prometheus.Registerer
	Now     func() time.Time
	Log     *slog.Logger
}

// Claims manages the ResourceClaims that pods of this node use, and the DRA drivers. Its methods may be called from any
// goroutine.
type Claims struct {
	opts    Options
	drivers *drivers
	metrics *metrics
	locks   lock.Keyed // by claim, held while it is prepared or unprepared
	waits   *wait.Waits

	// writing is held while records and their file change.
	writing sync.Mutex
	mu      sync.Mutex
	records map[string]*record // by namespace and name; a record is replaced, never changed
}

// New returns Claims without claims and drivers. Call Load before Run.
func New(o Options) (*Claims, error) {
	c := &Claims{opts: o, records: map[string]*record{}, waits: wait.New(o.Statuses)}
	var err error
	if c.metrics, err = newMetrics(o.Metrics, c.inUse); err != nil {
		return nil, err
	}
	c.drivers = newDrivers(o, c.metrics, c.users)
	return c, nil
}

func (c *Claims) file() string { return filepath.Join(c.opts.Dir, stateFile) }

// Load reads which claims the previous agent or a kubelet prepared. If the file cannot be read, there are none and the
// error says why.
func (c *Claims) Load() error {
	records, err := readRecords(c.file())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records = records
	return err
}

// Run follows drivers until ctx ends.
func (c *Claims) Run(ctx context.Context) error { return c.drivers.run(ctx) }

// Drivers returns the handler of plugins of type plugin.TypeDRA.
func (c *Claims) Drivers() *Drivers { return &Drivers{c.drivers} }

// Users returns the pods that use recorded claims. If such a pod is gone from the node, run its teardown to unprepare
// its claims; the UID suffices for that.
func (c *Claims) Users() []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[types.UID]bool{}
	for _, r := range c.records {
		for uid := range r.PodUIDs {
			all[types.UID(uid)] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// users returns the pods that use a claim of this driver.
func (c *Claims) users(driver string) (all []types.UID) {
	for _, r := range c.snapshot() {
		if _, ok := r.DriverState[driver]; !ok {
			continue
		}
		for uid := range r.PodUIDs {
			all = append(all, types.UID(uid))
		}
	}
	return all
}

// inUse counts the prepared claims of each driver. The key "<any>" counts all claims.
func (c *Claims) inUse() map[string]int {
	counts := map[string]int{anyDriver: 0}
	for _, r := range c.snapshot() {
		if r.PreparedBoot != c.opts.Boot {
			continue
		}
		counts[anyDriver]++
		for driver := range r.DriverState {
			counts[driver]++
		}
	}
	return counts
}

func (c *Claims) snapshot() map[string]*record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.records)
}

// update changes records and their file. If the write fails, both stay unchanged.
func (c *Claims) update(change func(map[string]*record)) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	next := c.snapshot()
	change(next)
	if err := writeRecords(c.file(), next); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records = next
	return nil
}

// Waiting returns the cause of the wait of a pod's step before the pod gets a sandbox.
func (c *Claims) Waiting(uid types.UID) (message string, ok bool) {
	return c.waits.Message(uid, "")
}

// Status returns the health of the devices of a container's claims. It is nil if no driver has prepared any.
func (c *Claims) Status(p *corev1.Pod, container string) []corev1.ResourceStatus {
	if !wants(p) {
		return nil
	}
	spec := containerOf(p, container)
	if spec == nil {
		return nil
	}
	all, _ := uses(p, spec)
	return statuses(all, c.snapshot(), p.Namespace, c.drivers.healths(), c.opts.Now())
}

// DynamicResources returns a container's claims in the form of the PodResources API.
func (c *Claims) DynamicResources(p *corev1.Pod, container string) []*podresources.DynamicResource {
	if !wants(p) {
		return nil
	}
	spec := containerOf(p, container)
	if spec == nil {
		return nil
	}
	all, _ := uses(p, spec)
	return dynamicResources(all, c.snapshot(), p.Namespace)
}
