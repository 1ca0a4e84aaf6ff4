package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/node/plugin"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/csinode"
)

// callLimit bounds a call of a driver, as for the kubelet.
const callLimit = 2 * time.Minute

// KindDriver is the Kind in the object.Key of what waits for a driver: that it
// registers or that its CSIDriver object is known.
const KindDriver = "CSIDriver"

func driverKey(name string) object.Key { return object.Key{Kind: KindDriver, Name: name} }

// driver is one that has registered.
type driver struct {
	name, endpoint string
	// version is the highest that it speaks.
	version *version.Version
	conn    *grpc.ClientConn
	node    csi.NodeClient
	// can are the node service's capabilities.
	can []csi.NodeServiceCapability_RPC_Type
	// info is what it said last of this node, before the one whose place it takes,
	// until the cluster has answered. Below the registry's lock.
	info   *csinode.Info
	before *driver
	// due is when to ask again how many volumes it can have; zero: never.
	due time.Time
	// asking: that is being done. Below the registry's lock, as due is.
	asking bool
}

func (d *driver) has(c csi.NodeServiceCapability_RPC_Type) bool { return slices.Contains(d.can, c) }

// call asks the driver within callLimit.
func call[Q, A any](ctx context.Context, f func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) (A,
	error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callLimit, fmt.Errorf("no answer in %s", callLimit))
	defer cancel()
	answer, err := f(ctx, request)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return answer, err
}

// Register begins to use a driver: it is asked what it can do, and is of use to pods
// from then on. The cluster is told of it, and its refusal ends that; one that does not
// answer is told later. A driver that speaks a higher version takes the place of one
// that has its name; any other is refused for as long as that is there.
func (k *registry) Register(ctx context.Context, p plugin.Plugin) error {
	if err := (identity{Driver: p.Name, Handle: "-"}).check(); err != nil {
		return err
	}
	unlock, err := k.names.Lock(ctx, p.Name)
	if err != nil {
		return err
	}
	defer unlock()
	k.mu.Lock()
	before := k.drivers[p.Name]
	k.mu.Unlock()
	speaks, err := succeeds(before, p.Versions)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix:"+p.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithIdleTimeout(0),
		grpc.WithAuthority("localhost"))
	if err != nil {
		return fmt.Errorf("connect to CSI driver: %w", err)
	}
	d := &driver{name: p.Name, endpoint: p.Endpoint, version: speaks, conn: conn, node: csi.NewNodeClient(conn)}
	if err := d.ask(ctx); err != nil {
		return errors.Join(err, conn.Close())
	}
	k.mu.Lock()
	d.before = k.drivers[p.Name] // nil by now if it has gone meanwhile
	k.drivers[p.Name] = d
	told := k.cluster.Publish(p.Name, d.info)
	k.mu.Unlock()
	k.wake(p.Name)
	if err := told.Accepted(ctx); err != nil {
		k.withdraw(d)
		return errors.Join(err, conn.Close())
	}
	k.mu.Lock()
	before, d.before = d.before, nil
	k.mu.Unlock()
	if before != nil {
		_ = before.conn.Close() // its calls fail and are tried again with this one
	}
	return nil
}

// withdraw ends the use of a driver that the cluster has refused, or that has gone
// before it answered.
func (k *registry) withdraw(d *driver) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if before := d.before; before != nil {
		k.drivers[d.name] = before
		k.cluster.Publish(d.name, before.info)
		return
	}
	delete(k.drivers, d.name)
	k.cluster.Publish(d.name, nil)
}

// ask has a driver say what it can do, and what this node is to it.
func (d *driver) ask(ctx context.Context) (err error) {
	can, err := call(ctx, d.node.NodeGetCapabilities, &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return fmt.Errorf("ask CSI driver for its capabilities: %w", err)
	}
	for _, c := range can.GetCapabilities() {
		d.can = append(d.can, c.GetRpc().GetType())
	}
	d.info, err = d.askInfo(ctx)
	return err
}

func (d *driver) askInfo(ctx context.Context) (*csinode.Info, error) {
	got, err := call(ctx, d.node.NodeGetInfo, &csi.NodeGetInfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask CSI driver for its node info: %w", err)
	}
	if got.GetNodeId() == "" {
		return nil, errors.New("the CSI driver gives this node no id (NodeGetInfo)")
	}
	return &csinode.Info{NodeID: got.GetNodeId(), Limit: got.GetMaxVolumesPerNode(),
		Topology: got.GetAccessibleTopology().GetSegments()}, nil
}

// announce asks a driver for its node info again, and has the cluster told of it if
// the driver is still there.
func (k *registry) announce(ctx context.Context, d *driver) error {
	i, err := d.askInfo(ctx)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.drivers[d.name] == d {
		d.info = i
		k.cluster.Publish(d.name, i)
	}
	return nil
}

// Deregister ends the use of a driver that has gone. Its volumes stay mounted.
func (k *registry) Deregister(p plugin.Plugin) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.drivers[p.Name]
	switch {
	case d == nil:
	case d.endpoint == p.Endpoint:
		delete(k.drivers, p.Name)
		k.cluster.Publish(p.Name, nil)
		_ = d.conn.Close() // it fails when it is closed already
	case d.before != nil && d.before.endpoint == p.Endpoint:
		_ = d.before.conn.Close()
		d.before = nil
	}
}

// driver finds one that has registered. The error is waited with until it has.
func (k *registry) driver(name string) (*driver, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.drivers[name]; d != nil {
		return d, nil
	}
	return nil,
		&object.Lacking{Key: driverKey(name),
			Err: fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)}
}

// wake has what waits for a driver tried again.
func (k *registry) wake(name string) {
	if k.o.Changed != nil {
		k.o.Changed(map[object.Key]bool{driverKey(name): true})
	}
}
