package dra

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline"
)

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
	// Pod returns the newest version of a desired pod, or nil. A claim may be created and reserved after its pod, and
	// only the newer pod status names it. Optional.
	Pod func(types.UID) *corev1.Pod
	// StandsIn reports that the API server was never reachable since the agent started and its stored objects are used
	// instead. Then claims that pods had before count as theirs. Optional.
	StandsIn func() bool
	// Affected is called with the UID of a pod after the health of a device of its claims changed, or the message about
	// what it waits for. It must not block.
	Affected func(types.UID)
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
	locks   locks

	// writing is held while records and their file change.
	writing sync.Mutex
	mu      sync.Mutex
	records map[string]*record // by namespace and name; a record is replaced, never changed
	waits   map[types.UID]string
}

// New returns Claims without claims and drivers. Call Load before Run.
func New(o Options) (*Claims, error) {
	c := &Claims{opts: o, locks: locks{busy: map[string]chan struct{}{}}, records: map[string]*record{},
		waits: map[types.UID]string{}}
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
	c.mu.Lock()
	defer c.mu.Unlock()
	message, ok = c.waits[uid]
	return message, ok
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

// waiting records what a pod waits for until done is called: in the timeline at once, and in the pod's status after
// quiet.
func (c *Claims) waiting(ctx context.Context, uid types.UID, what string, quiet time.Duration) (done func()) {
	ended := timeline.Wait(ctx, what)
	over, shown := false, false
	timer := time.AfterFunc(quiet, func() {
		c.mu.Lock()
		if shown = !over; shown {
			c.waits[uid] = "waiting for " + what
		}
		notify := shown
		c.mu.Unlock()
		if notify {
			c.opts.Affected(uid)
		}
	})
	return func() {
		ended()
		timer.Stop()
		c.mu.Lock()
		over = true
		delete(c.waits, uid)
		notify := shown
		c.mu.Unlock()
		if notify {
			c.opts.Affected(uid)
		}
	}
}

// locks holds the claims that are being prepared or unprepared.
type locks struct {
	mu   sync.Mutex
	busy map[string]chan struct{}
}

// enter locks these claims. It waits until no other caller has one of them locked.
func (l *locks) enter(ctx context.Context, keys []string) (leave func(), err error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys))) // a fixed order prevents deadlocks
	var mine []string
	leave = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, k := range mine {
			close(l.busy[k])
			delete(l.busy, k)
		}
	}
	for _, k := range keys {
		for {
			l.mu.Lock()
			other, busy := l.busy[k]
			if !busy {
				l.busy[k] = make(chan struct{})
				mine = append(mine, k)
			}
			l.mu.Unlock()
			if !busy {
				break
			}
			select {
			case <-other:
			case <-ctx.Done():
				leave()
				return nil, ctx.Err()
			}
		}
	}
	return leave, nil
}
