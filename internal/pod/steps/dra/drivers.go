package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/types"
	drahealthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	drapbv1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/node/plugin"
)

const (
	// callLimit is how long a driver may take to answer, the same as in the kubelet.
	callLimit = 45 * time.Second
	// reconnectMax is the longest delay between attempts to connect to a registered driver whose process has ended.
	reconnectMax = 5 * time.Second
)

// Drivers is the plugin.Handler of DRA drivers. During an upgrade a driver may have several plugins. The one that
// connected and registered last is called.
type Drivers struct{ all *drivers }

// Register implements plugin.Handler.
func (d *Drivers) Register(_ context.Context, p plugin.Plugin) error { return d.all.add(p) }

// Deregister implements plugin.Handler.
func (d *Drivers) Deregister(p plugin.Plugin) { d.all.remove(p) }

// nodeService is the API of a driver. Both versions have it.
type nodeService interface {
	NodePrepareResources(context.Context, *drapb.NodePrepareResourcesRequest,
		...grpc.CallOption) (*drapb.NodePrepareResourcesResponse, error)
	NodeUnprepareResources(context.Context, *drapb.NodeUnprepareResourcesRequest,
		...grpc.CallOption) (*drapb.NodeUnprepareResourcesResponse, error)
}

// driver is one plugin of a DRA driver.
type driver struct {
	plugin.Plugin
	conn    *grpc.ClientConn
	service nodeService
	// health is the client of its health service, nil if it has none.
	health    drahealthv1.DRAResourceHealthClient
	connected bool // guarded by drivers.mu
}

// drivers holds the registered drivers.
type drivers struct {
	opts    Options
	metrics *metrics
	users   func(driver string) []types.UID

	mu sync.Mutex
	// registered is in the order of registration.
	registered []*driver
	// unfollowed are registered plugins that run does not follow yet.
	unfollowed []*driver
	wake       wake.Signal // wakes run for them
	// gone holds the drivers without a connection, each with the time since when it has none. Such a driver may have
	// ResourceSlices.
	gone    map[string]time.Time
	changed wake.Broadcast // a driver connected, disconnected, registered or deregistered
	health  map[deviceKey]health
}

func newDrivers(o Options, m *metrics, users func(string) []types.UID) *drivers {
	return &drivers{opts: o, metrics: m, users: users, wake: wake.New(), gone: map[string]time.Time{},
		health: map[deviceKey]health{}}
}

func (d *drivers) add(p plugin.Plugin) error {
	version := slices.IndexFunc(p.Versions, func(v string) bool {
		return v == drapb.DRAPluginService || v == drapbv1beta1.DRAPluginService
	})
	if version < 0 {
		return fmt.Errorf("DRA driver %s serves %q; this node supports %s and %s", p.Name, p.Versions,
			drapb.DRAPluginService, drapbv1beta1.DRAPluginService)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.ContainsFunc(d.registered, func(o *driver) bool { return o.Name == p.Name && o.Endpoint == p.Endpoint }) {
		return fmt.Errorf("endpoint %s is already registered for DRA driver %s", p.Endpoint, p.Name)
	}
	patience := backoff.DefaultConfig
	patience.MaxDelay = reconnectMax
	conn, err := grpc.NewClient("unix:"+p.Endpoint, grpc.WithContextDialer(unixsocket.DialTarget),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: patience, MinConnectTimeout: reconnectMax}),
		grpc.WithUnaryInterceptor(d.timed(p.Name)))
	if err != nil {
		return fmt.Errorf("connect to DRA driver %s at %s: %w", p.Name, p.Endpoint, err)
	}
	added := &driver{Plugin: p, conn: conn, service: drapb.NewDRAPluginClient(conn)}
	if p.Versions[version] == drapbv1beta1.DRAPluginService {
		added.service = drapbv1beta1.V1Beta1ClientWrapper{DRAPluginClient: drapbv1beta1.NewDRAPluginClient(conn)}
	}
	switch {
	case slices.Contains(p.Versions, drahealthv1.DRAResourceHealthService):
		added.health = drahealthv1.NewDRAResourceHealthClient(conn)
	case slices.Contains(p.Versions, drahealth.DRAResourceHealthService):
		added.health = drahealthv1.V1Alpha1ClientWrapper{Client: drahealth.NewDRAResourceHealthClient(conn)}
	}
	d.registered = append(d.registered, added)
	d.unfollowed = append(d.unfollowed, added)
	d.refresh()
	return nil
}

// timed measures the calls of a driver and limits them to callLimit.
func (d *drivers) timed(name string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		start := d.opts.Now()
		late := fmt.Errorf("no answer within %v", callLimit)
		call, cancel := context.WithTimeoutCause(ctx, callLimit, late)
		defer cancel()
		err := invoke(call, method, req, reply, cc, opts...)
		d.metrics.call(name, method, err, d.opts.Now().Sub(start))
		if err != nil && errors.Is(context.Cause(call), late) {
			return late
		}
		return err
	}
}

func (d *drivers) remove(p plugin.Plugin) {
	d.mu.Lock()
	i := slices.IndexFunc(d.registered, func(o *driver) bool { return o.Name == p.Name && o.Endpoint == p.Endpoint })
	if i < 0 {
		d.mu.Unlock()
		return
	}
	removed := d.registered[i]
	d.registered = slices.Delete(slices.Clone(d.registered), i, i+1)
	d.unfollowed = slices.DeleteFunc(slices.Clone(d.unfollowed), func(o *driver) bool { return o == removed })
	if _, known := d.gone[p.Name]; !known &&
		!slices.ContainsFunc(d.registered, func(o *driver) bool { return o.Name == p.Name && o.connected }) {
		d.gone[p.Name] = d.opts.Now()
	}
	d.refresh()
	d.mu.Unlock()
	_ = removed.conn.Close() // ends its goroutines; it fails only if the connection is closed already
}

// refresh updates gone after a change of a driver and wakes all that wait for one. The caller holds mu.
func (d *drivers) refresh() {
	serving := map[string]bool{}
	for _, r := range d.registered {
		serving[r.Name] = serving[r.Name] || r.connected
	}
	for name := range d.gone {
		if serving[name] {
			delete(d.gone, name)
		}
	}
	for name, ok := range serving {
		if _, known := d.gone[name]; !ok && !known {
			d.gone[name] = d.opts.Now()
		}
	}
	d.changed.Wake()
	d.wake.Wake()
}

// of returns the plugin to call for a driver, nil if the driver is not registered. It returns a plugin without a
// connection if there is no other; the call then fails with the cause.
func (d *drivers) of(name string) (best *driver) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.registered {
		if r.Name == name && (best == nil || r.connected || !best.connected) {
			best = r
		}
	}
	return best
}

func (p *driver) prepare(ctx context.Context,
	r *drapb.NodePrepareResourcesRequest) (*drapb.NodePrepareResourcesResponse, error) {
	return p.service.NodePrepareResources(ctx, r)
}

func (p *driver) unprepare(ctx context.Context,
	r *drapb.NodeUnprepareResourcesRequest) (*drapb.NodeUnprepareResourcesResponse, error) {
	return p.service.NodeUnprepareResources(ctx, r)
}

func (d *drivers) healths() map[deviceKey]health {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.health)
}

// run follows the plugins that register, and removes the slices of drivers that are gone.
func (d *drivers) run(ctx context.Context) error {
	var follow sync.WaitGroup
	defer follow.Wait()
	defer d.closeAll()
	if d.opts.Client != nil {
		follow.Go(func() { d.sweep(ctx) })
	}
	for {
		d.mu.Lock()
		unfollowed := d.unfollowed
		d.unfollowed = nil
		d.mu.Unlock()
		for _, p := range unfollowed {
			follow.Go(func() { d.follow(ctx, p) })
			if p.health != nil {
				follow.Go(func() { d.watchHealth(ctx, p) })
			}
		}
		select {
		case <-d.wake.C():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *drivers) closeAll() {
	d.mu.Lock()
	all := slices.Clone(d.registered)
	d.mu.Unlock()
	for _, p := range all {
		_ = p.conn.Close() // it fails only if the connection is closed already
	}
}

// follow keeps a plugin's connection open and records whether it is ready, until the connection is closed.
func (d *drivers) follow(ctx context.Context, p *driver) {
	for {
		state := p.conn.GetState()
		if state == connectivity.Shutdown {
			return
		}
		if state == connectivity.Idle {
			p.conn.Connect()
		}
		d.mu.Lock()
		if ready := state == connectivity.Ready; ready != p.connected {
			p.connected = ready
			d.opts.Log.Info("DRA driver connection changed", "driver", p.Name, "endpoint", p.Endpoint, "serves", ready)
			d.refresh()
		}
		d.mu.Unlock()
		if !p.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}
