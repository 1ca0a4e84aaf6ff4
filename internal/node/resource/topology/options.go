package topology

import (
	"fmt"

	"github.com/berth-run/berth/internal/node/machine"
)

// Policy says how strictly the parts of a pod are to come from the same NUMA
// nodes, in the words of KubeletConfiguration's topologyManagerPolicy.
type Policy string

const (
	// None does not ask where anything comes from. It is the default, also "".
	None Policy = "none"
	// BestEffort prefers the best nodes and admits every pod.
	BestEffort Policy = "best-effort"
	// Restricted admits a pod only on nodes that each of its resources prefers.
	Restricted Policy = "restricted"
	// SingleNUMANode admits a pod only on one node.
	SingleNUMANode Policy = "single-numa-node"
)

// Scopes of topologyManagerScope: what is placed together.
const (
	ScopeContainer = "container"
	ScopePod       = "pod"
)

// DefaultMaxNodes is the default of max-allowable-numa-nodes and the least that
// may be set.
const DefaultMaxNodes = 8

// limit is the most NUMA nodes that Berth decides for: there are 2^n sets of n
// nodes, and each is a hint.
const limit = maxDense

// Options are topologyManagerPolicy, topologyManagerScope and the
// topologyManagerPolicyOptions of a KubeletConfiguration.
type Options struct {
	Policy Policy
	// Scope is ScopeContainer ("" too) or ScopePod.
	Scope string
	// PreferClosest (prefer-closest-numa-nodes, KEP-3545): of equally many nodes
	// those with the least average distance. Not under SingleNUMANode.
	PreferClosest bool
	// MaxNodes (max-allowable-numa-nodes, KEP-4622): 8 or more, 0 is 8.
	MaxNodes int
}

// Check says why these options cannot be used on a machine with these nodes. With
// policy none everything can, as in the kubelet. A node without CPUs and with an
// id above 63 counts as not there: it is the memory of an accelerator (POWER9),
// and Nodes has no place for it.
func Check(o Options, nodes []machine.Node) error {
	switch o.Policy {
	case None, "":
		return nil
	case BestEffort, Restricted, SingleNUMANode:
	default:
		return fmt.Errorf(
			"topologyManagerPolicy %q is not known: use none, best-effort, restricted or single-numa-node", o.Policy)
	}
	switch o.Scope {
	case ScopeContainer, ScopePod, "":
	default:
		return fmt.Errorf("topologyManagerScope %q is not known: use container or pod", o.Scope)
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
				"topologyManagerPolicy %s: NUMA node %d has CPUs, ids above 63 cannot be decided for: use policy none",
				o.Policy, node.ID)
		default:
			continue // memory of an accelerator, nothing is placed there
		}
		if o.PreferClosest && len(node.Distances) == 0 {
			return fmt.Errorf(
				"topologyManagerPolicyOptions: prefer-closest-numa-nodes needs the distances of NUMA node %d, which "+
					"the machine does not tell", node.ID)
		}
	}
	if n > most {
		return fmt.Errorf(
			"topologyManagerPolicy %s: the machine has %d NUMA nodes and max-allowable-numa-nodes is %d: "+
				"raise it to %d", o.Policy, n, most, n)
	}
	if n > limit {
		return fmt.Errorf(
			"topologyManagerPolicy %s: the machine has %d NUMA nodes, more than the %d that can be decided for: use "+
				"policy none", o.Policy, n, limit)
	}
	return nil
}
