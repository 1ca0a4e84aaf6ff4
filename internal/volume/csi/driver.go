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

	"github.com/berth-run/berth/internal/object"
	"github.com/berth-run/berth/internal/plugin"
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
	// due is when to ask again how many volumes it can have; zero: never.
	due time.Time
	// asking: that is being done. Below the registry's lock, as due is.
	asking bool
}

func (d *driver) has(c csi.NodeServiceCapability_RPC_Type) bool { return slices.Contains(d.can, c) }

// call asks the driver within callLimit.
func call[Q, A any](ctx context.Context, f func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) (A, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callLimit, fmt.Errorf("no answer in %s", callLimit))
	defer cancel()
	answer, err := f(ctx, request)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return answer, err
}

// Register begins to use a driver: it is asked what it can do, and the cluster is
// told of it. One that speaks a higher version takes the place of one that has its
// name; any other is refused for as long as that is there.
func (k *registry) Register(ctx context.Context, p plugin.Plugin) error {
	if err := (identity{Driver: p.Name, Handle: "-"}).check(); err != nil {
		return err
	}
	unlock, err := k.names.lock(ctx, p.Name)
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
	conn, err := grpc.NewClient("unix:"+p.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(), grpc.WithIdleTimeout(0),
		grpc.WithAuthority("localhost"))
	if err != nil {
		return fmt.Errorf("connect to CSI driver: %w", err)
	}
	d := &driver{name: p.Name, endpoint: p.Endpoint, version: speaks, conn: conn, node: csi.NewNodeClient(conn)}
	if err := k.install(ctx, d); err != nil {
		return errors.Join(err, conn.Close())
	}
	k.mu.Lock()
	k.drivers[p.Name] = d
	k.mu.Unlock()
	if before != nil {
		_ = before.conn.Close() // its calls fail and are tried again with this one
	}
	k.wake(p.Name)
	return nil
}

func (k *registry) install(ctx context.Context, d *driver) error {
	can, err := call(ctx, d.node.NodeGetCapabilities, &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return fmt.Errorf("ask CSI driver for its capabilities: %w", err)
	}
	for _, c := range can.GetCapabilities() {
		d.can = append(d.can, c.GetRpc().GetType())
	}
	return k.announce(ctx, d)
}

// announce asks a driver for its node info and tells the cluster of it.
func (k *registry) announce(ctx context.Context, d *driver) error {
	got, err := call(ctx, d.node.NodeGetInfo, &csi.NodeGetInfoRequest{})
	if err != nil {
		return fmt.Errorf("ask CSI driver for its node info: %w", err)
	}
	if got.GetNodeId() == "" {
		return errors.New("the CSI driver gives this node no id (NodeGetInfo)")
	}
	if k.o.Client == nil {
		return nil
	}
	return k.tellNode(ctx, d.name, &info{nodeID: got.GetNodeId(), limit: got.GetMaxVolumesPerNode(), topology: got.GetAccessibleTopology().GetSegments()})
}

// Deregister ends the use of a driver that has gone. Its volumes stay mounted.
func (k *registry) Deregister(p plugin.Plugin) {
	k.mu.Lock()
	d := k.drivers[p.Name]
	if d == nil || d.endpoint != p.Endpoint {
		k.mu.Unlock()
		return
	}
	delete(k.drivers, p.Name)
	k.mu.Unlock()
	_ = d.conn.Close() // it fails when it is closed already
	if k.o.Client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tellLimit)
	defer cancel()
	if err := k.tellNode(ctx, p.Name, nil); err != nil {
		k.o.Log.Warn("take CSI driver out of CSINode", "driver", p.Name, "err", err)
	}
}

// driver finds one that has registered. The error is waited with until it has.
func (k *registry) driver(name string) (*driver, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.drivers[name]; d != nil {
		return d, nil
	}
	return nil, &object.Lacking{Key: driverKey(name), Err: fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)}
}

// wake has what waits for a driver tried again.
func (k *registry) wake(name string) {
	if k.o.Changed != nil {
		k.o.Changed(map[object.Key]bool{driverKey(name): true})
	}
}
