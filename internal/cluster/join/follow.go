package join

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/node/condition"
)

// runtimePeriod is how often a kubelet asks the runtime how it is: a runtime that
// loses its network makes the node NotReady as soon as there.
const runtimePeriod = 5 * time.Second

// csiNodeRetry is the time between attempts to make a CSINode.
const csiNodeRetry = time.Second

// Monitoring is how the container runtime is looked after, whose conditions are the
// node's. c may be nil.
func Monitoring(c *Cluster) cri.MonitorOptions {
	if c == nil {
		return cri.MonitorOptions{}
	}
	return cri.MonitorOptions{Calm: runtimePeriod, Observe: func(h cri.Health) {
		if h.Err == nil { // its silence counts by itself
			c.conditions.Answered(h.Status)
		}
	}}
}

// AddressesChanged has a token after the addresses of the Node object have changed;
// nil: they never do.
func (c *Cluster) AddressesChanged() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.node.moved
}

// changes are those of the Node object, which others write too.
type changes struct{ *Cluster }

// follow calls react with the Node object as it is, after each change of it, and
// again after the time that it returned, if that is not 0.
func (c changes) follow(react func(context.Context, *corev1.Node) (again time.Duration)) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			changed := c.node.object.Changed()
			var again <-chan time.Time
			if wait := react(ctx, c.node.object.Node()); wait > 0 {
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

// told has the pods that wait for something of the node looked at again.
func (c changes) told(context.Context, *corev1.Node) time.Duration {
	c.NodeChanged()
	return 0
}

// stores has a CSINode made beside the Node. Until it is there the node is not Ready,
// as a kubelet's: the scheduler would know of no limits of its volumes.
func (c changes) stores() func(context.Context, *corev1.Node) time.Duration {
	c.conditions.Set(condition.Storage, "CSINode is not yet initialized")
	present := types.UID("")
	return func(ctx context.Context, n *corev1.Node) time.Duration {
		if n.UID == "" || n.UID == present {
			return 0
		}
		if err := c.plugins.volumes.Present(ctx, n); err != nil {
			if ctx.Err() == nil {
				c.Log.Warn("The node has no CSINode object yet", "err", err)
			}
			return csiNodeRetry
		}
		present = n.UID
		c.conditions.Set(condition.Storage, "")
		return 0
	}
}

// moves tells of other addresses of the node, as a cloud's controller may give it.
func (c changes) moves() func(context.Context, *corev1.Node) time.Duration {
	was := c.node.object.Node().Status.Addresses
	return func(_ context.Context, n *corev1.Node) time.Duration {
		if !slices.Equal(was, n.Status.Addresses) {
			was = n.Status.Addresses
			c.Moved()
			select {
			case c.node.moved <- struct{}{}:
			default:
			}
		}
		return 0
	}
}

// ranges tells the container runtime which addresses the cluster has given to the
// pods of this node. What it makes of them is its own: the ranges of a network that
// a plugin of the cluster has configured are the plugin's.
func (c changes) ranges(runtime runtimeapi.RuntimeServiceClient) func(context.Context, *corev1.Node) time.Duration {
	told := ""
	return func(ctx context.Context, n *corev1.Node) time.Duration {
		cidrs := strings.Join(n.Spec.PodCIDRs, ",")
		if cidrs == "" || cidrs == told {
			return 0
		}
		if err := tellRanges(ctx, runtime, cidrs); err != nil {
			if ctx.Err() == nil {
				c.Log.Warn("the container runtime does not know the node's range of pod addresses", "podCIDRs", cidrs,
					"err", err)
			}
			return c.Config.Cluster.Status.UpdateFrequency
		}
		c.Log.Info("The node's range of pod addresses", "podCIDRs", cidrs)
		told = cidrs
		return 0
	}
}

func tellRanges(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, cidrs string) error {
	_, err := runtime.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{
		RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidrs}},
	})
	if err != nil {
		return fmt.Errorf("update the runtime's configuration: %w", err)
	}
	return nil
}
