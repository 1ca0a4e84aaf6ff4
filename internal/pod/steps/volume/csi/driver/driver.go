package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/csinode"
)

// callTimeout bounds one call of a driver. The kubelet has the same limit.
const callTimeout = 2 * time.Minute

// Driver is one registered driver. Its exported fields do not change after Register.
type Driver struct {
	Name, Endpoint string
	// Node makes calls of the driver's node service. Use it with Call.
	Node csi.NodeClient
	// Capabilities of the node service.
	Capabilities []csi.NodeServiceCapability_RPC_Type

	// version is the highest CSI version that the driver supports.
	version *version.Version
	conn    *grpc.ClientConn

	// The registry's lock guards the fields below.

	// info is the driver's last report about this node.
	info *csinode.Info
	// previous is the driver that this one replaces. It is kept until the API server has answered.
	previous *Driver
	// refreshAt is when to ask the driver again how many volumes it can attach; zero is never.
	refreshAt  time.Time
	refreshing bool
}

// Can reports whether the driver has a capability.
func (d *Driver) Can(c csi.NodeServiceCapability_RPC_Type) bool {
	return slices.Contains(d.Capabilities, c)
}

// Call calls a method of the driver. It ends after two minutes or with ctx.
func Call[Q, A any](
	ctx context.Context, method func(context.Context, Q, ...grpc.CallOption) (A, error), request Q,
) (A, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("no answer in %s", callTimeout))
	defer cancel()
	answer, err := method(ctx, request)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return answer, err
}

// connect prepares a connection to the driver at a socket. It sends nothing yet.
func connect(name, endpoint string, v *version.Version, calls *prometheus.HistogramVec) (*Driver, error) {
	conn, err := grpc.NewClient("unix:"+endpoint, grpc.WithContextDialer(unixsocket.DialTarget),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithIdleTimeout(0), grpc.WithAuthority("localhost"),
		grpc.WithChainUnaryInterceptor(measured(calls, name)))
	if err != nil {
		return nil, fmt.Errorf("connect to CSI driver: %w", err)
	}
	return &Driver{Name: name, Endpoint: endpoint, version: v, conn: conn, Node: csi.NewNodeClient(conn)}, nil
}

// query asks the driver for its capabilities and for its info about this node.
func (d *Driver) query(ctx context.Context) (err error) {
	answer, err := Call(ctx, d.Node.NodeGetCapabilities, &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return fmt.Errorf("ask CSI driver for its capabilities: %w", err)
	}
	for _, c := range answer.GetCapabilities() {
		d.Capabilities = append(d.Capabilities, c.GetRpc().GetType())
	}
	d.info, err = d.nodeInfo(ctx)
	return err
}

func (d *Driver) nodeInfo(ctx context.Context) (*csinode.Info, error) {
	answer, err := Call(ctx, d.Node.NodeGetInfo, &csi.NodeGetInfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask CSI driver for its node info: %w", err)
	}
	if answer.GetNodeId() == "" {
		return nil, errors.New("the CSI driver gives this node no id (NodeGetInfo)")
	}
	return &csinode.Info{NodeID: answer.GetNodeId(), Limit: answer.GetMaxVolumesPerNode(),
		Topology: answer.GetAccessibleTopology().GetSegments()}, nil
}
