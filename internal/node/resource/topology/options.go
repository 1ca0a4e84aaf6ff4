package topology

import (
	"fmt"

	"github.com/berth-run/berth/internal/node/machine"
)

// Policy is KubeletConfiguration's topologyManagerPolicy: how strictly the resources of a pod must come from the same
// NUMA nodes.
type Policy string

const (
	// None ignores topology. It is the default; "" means the same.
	None Policy = "none"
	// BestEffort prefers the best nodes and admits every pod.
	BestEffort Policy = "best-effort"
	// Restricted admits a pod only on nodes that each of its resources prefers.
	Restricted Policy = "restricted"
	// SingleNUMANode admits a pod only on a single node.
	SingleNUMANode Policy = "single-numa-node"
)

// Values of topologyManagerScope: what is aligned together.
const (
	ScopeContainer = "container"
	ScopePod       = "pod"
)

// DefaultMaxNodes is the default and the minimum of max-allowable-numa-nodes.
const DefaultMaxNodes = 8

// limit is the largest number of NUMA nodes that Merge supports. n nodes have 2^n sets, and each is a hint.
const limit = maxDense

// Options are topologyManagerPolicy, topologyManagerScope and topologyManagerPolicyOptions of a KubeletConfiguration.
type Options struct {
	Policy Policy
	// Scope is ScopeContainer or ScopePod. "" means ScopeContainer.
	Scope string
	// PreferClosest (prefer-closest-numa-nodes, KEP-3545) prefers, among sets of equal size, the one with the least
	// average distance. SingleNUMANode ignores it.
	PreferClosest bool
	// MaxNodes (max-allowable-numa-nodes, KEP-4622) is at least 8. 0 means 8.
	MaxNodes int
}

// Check returns an error if these options cannot be used on a machine with these nodes. Policy none has no
// requirements, as in the kubelet. A node with an ID above 63 and without CPUs is ignored: it is the memory of an
// accelerator (POWER9), and Nodes cannot represent it.
func Check(o Options, nodes []machine.Node) error {
	switch o.Policy {
	case None, "":
		return nil
	case BestEffort, Restricted, SingleNUMANode:
	default:
		return fmt.Errorf(
			"unknown topologyManagerPolicy %q; next: use none, best-effort, restricted or single-numa-node", o.Policy)
	}
	switch o.Scope {
	case ScopeContainer, ScopePod, "":
	default:
		return fmt.Errorf("unknown topologyManagerScope %q; next: use container or pod", o.Scope)
	}
	most := o.MaxNodes
	if most == 0 {
		most = DefaultMaxNodes
	}
	if most < DefaultMaxNodes {
		return fmt.Errorf("topologyManagerPolicyOptions: max-allowable-numa-nodes is %d, the least is %d", most,
			DefaultMaxNodes)
	}
	n := 0
	for _, node := range nodes {
		switch {
		case node.ID < 64:
			n++
		case !node.CPUs.IsEmpty():
			return fmt.Errorf(
				"topologyManagerPolicy %s: NUMA node %d has CPUs, but only ids up to 63 are supported; next: use "+
					"policy none",
				o.Policy, node.ID)
		default:
			continue // memory of an accelerator: nothing is placed there
		}
		if o.PreferClosest && len(node.Distances) == 0 {
			return fmt.Errorf(
				"topologyManagerPolicyOptions: prefer-closest-numa-nodes needs the distances of NUMA node %d, which "+
					"the machine does not report", node.ID)
		}
	}
	if n > most {
		return fmt.Errorf(
			"topologyManagerPolicy %s: the machine has %d NUMA nodes and max-allowable-numa-nodes is %d; next: "+
				"raise it to %d", o.Policy, n, most, n)
	}
	if n > limit {
		return fmt.Errorf(
			"topologyManagerPolicy %s: the machine has %d NUMA nodes, more than the %d that are supported; next: use "+
				"policy none", o.Policy, n, limit)
	}
	return nil
}
