package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/lock"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/node/plugin"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/csinode"
	"github.com/berth-run/berth/internal/record/event"
)

// KindDriver is the Kind in the object.Key of a wait for a driver: for its registration or for its CSIDriver object.
const KindDriver = "CSIDriver"

// Key is the object.Key of a wait for a driver.
func Key(name string) object.Key { return object.Key{Kind: KindDriver, Name: name} }

// Changes wakes the pods that wait for objects.
type Changes interface {
	// AddAll adds the keys of objects that have changed. It does not block.
	AddAll(map[object.Key]bool)
}

// Options of a Registry. Fields are required unless they say otherwise.
type Options struct {
	// Node is this node's name.
	Node string
	// Client has the node's credentials. It is nil on a node without a cluster, where no driver has a CSIDriver.
	Client kubernetes.Interface
	// Changed collects the keys that pods may wait for. It may be nil.
	Changed Changes
	Events  event.Sink
	Now     func() time.Time
	Log     *slog.Logger
}

// Registry has the registered drivers. It is a plugin.Handler. Make it with New, then Run it. Its methods may be called
// from any goroutine.
type Registry struct {
	o           Options
	cluster     *csinode.Writer // nil without a cluster
	registering lock.Keyed      // by driver name
	objects     objects
	calls       *prometheus.HistogramVec

	mu      sync.Mutex
	drivers map[string]*Driver
}

// New makes a Registry without drivers.
func New(o Options) *Registry {
	r := &Registry{o: o, objects: newObjects(), calls: newCalls(), drivers: map[string]*Driver{}}
	if o.Client != nil {
		r.cluster = csinode.New(csinode.Options{Client: o.Client, Node: o.Node, Events: o.Events, Log: o.Log})
	}
	return r
}

// EnsureCSINode creates the CSINode of this node if there is none: see csinode.Writer.
func (r *Registry) EnsureCSINode(ctx context.Context, node *corev1.Node) error {
	return r.cluster.Ensure(ctx, node)
}

// refreshPeriod is how often Run looks for drivers whose limit is due.
const refreshPeriod = time.Minute

// Run watches the CSIDriver objects, publishes drivers and refreshes their limits until ctx ends. Then it closes the
// connections to the drivers.
func (r *Registry) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer r.close()
	defer parts.Wait()
	parts.Go(func() { r.watchObjects(ctx) })
	parts.Go(func() { _ = r.cluster.Run(ctx) }) // it returns only when ctx ends
	ticker := time.NewTicker(refreshPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			r.refreshLimits(ctx, &parts)
		}
	}
}

func (r *Registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.drivers {
		_ = d.conn.Close() // there is nothing to lose
	}
	clear(r.drivers)
}

// Register asks a driver for its capabilities and lets pods use it. If the API server then rejects the driver, Register
// withdraws it; if the API server is unreachable, the driver stays in use and is published later. A driver with a
// higher CSI version replaces the registered one of its name. Any other driver of that name is refused.
func (r *Registry) Register(ctx context.Context, p plugin.Plugin) error {
	if p.Name == "" {
		return errors.New("the CSI driver has no name")
	}
	if err := CheckName(p.Name); err != nil {
		return err
	}
	unlock, err := r.registering.Lock(ctx, p.Name)
	if err != nil {
		return err
	}
	defer unlock()
	r.mu.Lock()
	previous := r.drivers[p.Name]
	r.mu.Unlock()
	v, err := negotiate(previous, p.Versions)
	if err != nil {
		return err
	}
	d, err := connect(p.Name, p.Endpoint, v, r.calls)
	if err != nil {
		return err
	}
	if err := d.query(ctx); err != nil {
		return errors.Join(err, d.conn.Close())
	}
	r.mu.Lock()
	d.previous = r.drivers[p.Name] // nil if it was deregistered meanwhile
	r.drivers[p.Name] = d
	update := r.cluster.Publish(p.Name, d.info)
	r.mu.Unlock()
	r.wake(p.Name)
	if err := update.Accepted(ctx); err != nil {
		r.withdraw(d)
		return errors.Join(err, d.conn.Close())
	}
	r.mu.Lock()
	previous, d.previous = d.previous, nil
	r.mu.Unlock()
	if previous != nil {
		_ = previous.conn.Close() // its calls fail; their callers retry with the new driver
	}
	return nil
}

// withdraw removes a driver that the API server has rejected or whose registration was interrupted. The driver that it
// replaced returns.
func (r *Registry) withdraw(d *Driver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if previous := d.previous; previous != nil {
		r.drivers[d.Name] = previous
		r.cluster.Publish(d.Name, previous.info)
		return
	}
	delete(r.drivers, d.Name)
	r.cluster.Publish(d.Name, nil)
}

// Deregister removes a driver. Its volumes stay mounted.
func (r *Registry) Deregister(p plugin.Plugin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.drivers[p.Name]
	switch {
	case d == nil:
	case d.Endpoint == p.Endpoint:
		delete(r.drivers, p.Name)
		r.cluster.Publish(p.Name, nil)
		_ = d.conn.Close() // fails only if it is closed already
	case d.previous != nil && d.previous.Endpoint == p.Endpoint:
		_ = d.previous.conn.Close()
		d.previous = nil
	}
}

// Get returns a registered driver. Its error names the key to wait for.
func (r *Registry) Get(name string) (*Driver, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.drivers[name]; d != nil {
		return d, nil
	}
	return nil, &object.Lacking{Key: Key(name),
		Err: fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)}
}

// wake wakes the pods that wait for a driver.
func (r *Registry) wake(name string) {
	if r.o.Changed != nil {
		r.o.Changed.AddAll(map[object.Key]bool{Key(name): true})
	}
}

// RefreshLimit makes Run ask a driver within a minute how many volumes it can attach: a volume could not be attached
// for want of room. It does nothing for a driver without nodeAllocatableUpdatePeriodSeconds.
func (r *Registry) RefreshLimit(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.drivers[name]; d != nil {
		d.refreshAt = r.o.Now()
	}
}

// refreshLimits starts a goroutine for each driver, so that a driver that hangs delays no other. It skips drivers whose
// goroutine still runs.
func (r *Registry) refreshLimits(ctx context.Context, parts *sync.WaitGroup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.drivers {
		if d.refreshing {
			continue
		}
		d.refreshing = true
		parts.Go(func() {
			r.refreshIfDue(ctx, d)
			r.mu.Lock()
			defer r.mu.Unlock()
			d.refreshing = false
		})
	}
}

// refreshIfDue asks a driver again how many volumes it can attach (KEP-4876): every nodeAllocatableUpdatePeriodSeconds
// of its CSIDriver, and after RefreshLimit.
func (r *Registry) refreshIfDue(ctx context.Context, d *Driver) {
	if r.o.Client == nil {
		return
	}
	now := r.o.Now()
	var every time.Duration
	if o, err := r.CSIDriver(d.Name); err == nil && o != nil && o.Spec.NodeAllocatableUpdatePeriodSeconds != nil {
		every = time.Duration(*o.Spec.NodeAllocatableUpdatePeriodSeconds) * time.Second
	}
	r.mu.Lock()
	due := !d.refreshAt.IsZero() && !now.Before(d.refreshAt)
	switch {
	case every > 0 && (due || d.refreshAt.IsZero()):
		d.refreshAt = now.Add(every)
	case every == 0:
		d.refreshAt, due = time.Time{}, false
	}
	r.mu.Unlock()
	if !due {
		return
	}
	if err := r.RefreshInfo(ctx, d); err != nil && ctx.Err() == nil {
		r.o.Log.Warn("cannot read how many volumes a CSI driver can attach, keeping the previous number", "driver",
			d.Name, "err", err)
	}
}

// RefreshInfo asks a driver for its node info again and publishes it, unless the driver has been replaced or removed.
func (r *Registry) RefreshInfo(ctx context.Context, d *Driver) error {
	i, err := d.nodeInfo(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drivers[d.Name] == d {
		d.info = i
		r.cluster.Publish(d.Name, i)
	}
	return nil
}
