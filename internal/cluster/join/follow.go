package join

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/cluster/nodeobject"
	"github.com/berth-run/berth/internal/node/condition"
	"github.com/berth-run/berth/internal/pod/status"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/driver"
)

// runtimePeriod is the kubelet's interval for checking the runtime. A runtime that loses its network makes the node
// NotReady within that time.
const runtimePeriod = 5 * time.Second

// csiNodeRetry is the time between attempts to create the CSINode.
const csiNodeRetry = time.Second

// changes reacts to changes of the Node object, which others write too.
type changes struct {
	object       *nodeobject.Object
	conditions   *condition.Table
	stale        *status.Stale // pods whose status shows the node's addresses
	newAddresses wake.Signal   // raised after the addresses of the Node object have changed
	retry        time.Duration // after the runtime has not accepted the pod address ranges
	log          *slog.Logger
}

// reaction is called with the current Node object. It is called again after the returned duration, unless that is 0.
type reaction func(context.Context, *corev1.Node) (again time.Duration)

// follow calls react with the current Node object, and again after each change of the object. If react returns a
// duration other than 0, follow also calls it after that time.
func (c *changes) follow(react reaction) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			changed := c.object.Changed()
			var again <-chan time.Time
			if wait := react(ctx, c.object.Node()); wait > 0 {
				again = time.After(wait)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-changed:
			case <-again:
			}
		}
	}
}

// csiNode creates the CSINode object beside the Node. Until it exists the node is not Ready, as with the kubelet: the
// scheduler would not know the limits of the node's volumes.
func (c *changes) csiNode(drivers *driver.Registry) reaction {
	c.conditions.Set(condition.Storage, "CSINode is not yet initialized")
	present := types.UID("")
	return func(ctx context.Context, n *corev1.Node) time.Duration {
		if n.UID == "" || n.UID == present {
			return 0
		}
		if err := drivers.EnsureCSINode(ctx, n); err != nil {
			if ctx.Err() == nil {
				c.log.Warn("cannot create the CSINode object, retrying", "err", err, "after", csiNodeRetry)
			}
			return csiNodeRetry
		}
		present = n.UID
		c.conditions.Set(condition.Storage, "")
		return 0
	}
}

// addresses propagates new addresses of the Node object. A cloud controller may set them.
func (c *changes) addresses() reaction {
	was := c.object.Node().Status.Addresses
	return func(_ context.Context, n *corev1.Node) time.Duration {
		if !slices.Equal(was, n.Status.Addresses) {
			was = n.Status.Addresses
			c.stale.MarkAll()
			c.newAddresses.Wake()
		}
		return 0
	}
}

// podRanges sends the pod address ranges that the cluster has assigned to this node to the container runtime. The
// runtime may ignore them: a network plugin of the cluster uses the ranges in its own configuration.
func (c *changes) podRanges(runtime runtimeapi.RuntimeServiceClient) reaction {
	sent := ""
	return func(ctx context.Context, n *corev1.Node) time.Duration {
		cidrs := strings.Join(n.Spec.PodCIDRs, ",")
		if cidrs == "" || cidrs == sent {
			return 0
		}
		if err := sendRanges(ctx, runtime, cidrs); err != nil {
			if ctx.Err() == nil {
				c.log.Warn("cannot send the pod address ranges to the container runtime, retrying", "podCIDRs", cidrs,
					"err", err, "after", c.retry)
			}
			return c.retry
		}
		c.log.Info("pod address ranges sent to the container runtime", "podCIDRs", cidrs)
		sent = cidrs
		return 0
	}
}

func sendRanges(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, cidrs string) error {
	_, err := runtime.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{
		RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidrs}},
	})
	if err != nil {
		return fmt.Errorf("update the runtime's configuration: %w", err)
	}
	return nil
}
