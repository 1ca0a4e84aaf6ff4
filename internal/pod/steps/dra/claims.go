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

	"github.com/berth-run/berth/internal/record/timeline"
)

type events interface {
	Event(ref corev1.ObjectReference, eventType, reason, format string, args ...any)
}

// Options are what Claims needs from its surroundings.
type Options struct {
	// Client reads ResourceClaims and removes ResourceSlices, as a node. nil in an
	// agent without a cluster, whose pods have no claims.
	Client kubernetes.Interface
	// Node is the name of this node.
	Node string
	// Dir is the agent's root directory. It exists when the first pod comes.
	Dir string
	// Boot is the kernel's boot id.
	Boot string
	// Pod is the newest of a pod that is desired, nil: it is not. A claim is made and
	// reserved after the pod, whose status says so. Optional.
	Pod func(types.UID) *corev1.Pod
	// StandsIn says that the API server is away since the agent began, and that what was
	// kept of it counts: claims that pods had before. Optional.
	StandsIn func() bool
	// Affected is told of a pod when the health of a device of its claims, or what it
	// waits for, has changed. It must not block.
	Affected func(types.UID)
	Events   events
	// Metrics may be nil.
	Metrics prometheus.Registerer
	Now     func() time.Time
	Log     *slog.Logger
}

// Claims are the ResourceClaims that pods of this node use, and the drivers. Its
// methods may be called from any goroutine.
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

// New makes a Claims that knows of no claim and no driver.
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

// Load reads what an earlier agent or a kubelet had prepared. It goes on without what
// cannot be read, and the error says so.
func (c *Claims) Load() error {
	records, err := readRecords(c.file())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records = records
	return err
}

// Run follows drivers until ctx ends.
func (c *Claims) Run(ctx context.Context) error { return c.drivers.run(ctx) }

// Drivers takes the plugins of type plugin.TypeDRA.
func (c *Claims) Drivers() *Drivers { return &Drivers{c.drivers} }

// Users are the pods that use claims which are prepared or were to be. The teardown
// of one that is not on the node any more has its claims unprepared; its UID suffices.
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

// users are the pods that use a device of a driver, nil: all of the driver.
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

// inUse counts prepared claims by driver, and all of them under "<any>".
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

// update changes records and their file. Both stay as they were when it fails.
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

// Waiting says what a pod waits for before it gets a sandbox.
func (c *Claims) Waiting(uid types.UID) (message string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	message, ok = c.waits[uid]
	return message, ok
}

// Status is the health of what a container uses of claims; nil: nothing that a
// driver has prepared.
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

// DynamicResources are a container's claims for the PodResources API.
func (c *Claims) DynamicResources(p *corev1.Pod, container string) []*podresources.DynamicResource {
	if !wants(p) {
		return nil
	}
	spec := containerOf(p, container)
	if spec == nil {
		return nil
	}
	all, _ := uses(p, spec)
	return shown(all, c.snapshot(), p.Namespace)
}

// waiting tells what a pod waits for until done is called: in the timeline, and after
// a moment of quiet in its status.
func (c *Claims) waiting(ctx context.Context, uid types.UID, what string, quiet time.Duration) (done func()) {
	ended := timeline.Wait(ctx, what)
	over, told := false, false
	timer := time.AfterFunc(quiet, func() {
		c.mu.Lock()
		if told = !over; told {
			c.waits[uid] = "waiting for " + what
		}
		tell := told
		c.mu.Unlock()
		if tell {
			c.opts.Affected(uid)
		}
	})
	return func() {
		ended()
		timer.Stop()
		c.mu.Lock()
		over = true
		delete(c.waits, uid)
		tell := told
		c.mu.Unlock()
		if tell {
			c.opts.Affected(uid)
		}
	}
}

// locks are claims that are being prepared or unprepared.
type locks struct {
	mu   sync.Mutex
	busy map[string]chan struct{}
}

// enter waits for all others who work on one of these claims.
func (l *locks) enter(ctx context.Context, keys []string) (leave func(), err error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys))) // in one order: nobody waits for each other
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
