package memory

import (
	"maps"
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// Request is the request of one container, or of a pod as a whole.
type Request struct {
	// Sizes are bytes by resource. Each is more than 0.
	Sizes map[corev1.ResourceName]int64
	// Reusable are blocks of init containers of the pod that have ended by then. The State counts them as held too.
	Reusable []Block
}

// Exclusive returns the memory and huge pages that a container is due on NUMA nodes: all that it requests, if its pod
// is Guaranteed. In a pod with pod-level resources, its requests for CPU and memory must also equal its limits
// (KEP-5526). Nil means none.
func Exclusive(p *corev1.Pod, c *corev1.Container) map[corev1.ResourceName]int64 {
	if pod.QOS(p) != corev1.PodQOSGuaranteed || resourcehelper.IsPodLevelResourcesSet(p) && !guaranteed(c) {
		return nil
	}
	return sizes(c.Resources.Requests)
}

// guaranteed reports whether the container by itself would make a Guaranteed pod.
func guaranteed(c *corev1.Container) bool {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
		if limit.Sign() <= 0 || request.Cmp(limit) != 0 {
			return false
		}
	}
	return true
}

// ExclusivePod returns what a pod is due as a whole: its pod-level requests, or the most that its containers are due at
// the same time.
func ExclusivePod(p *corev1.Pod) map[corev1.ResourceName]int64 {
	if pod.QOS(p) != corev1.PodQOSGuaranteed {
		return nil
	}
	if resourcehelper.IsPodLevelResourcesSet(p) {
		return sizes(p.Spec.Resources.Requests)
	}
	most, lasting := amounts{}, amounts{}
	for _, c := range pod.Containers(p) {
		for name, size := range Exclusive(p, c.Container) {
			switch c.Kind {
			case pod.Init:
				most[name] = max(most[name], lasting[name]+size)
			case pod.Sidecar, pod.App:
				lasting[name] += size
				most[name] = max(most[name], lasting[name])
			case pod.Ephemeral: // has no resources
			}
		}
	}
	return most
}

// CheckBubble rejects a pod with pod-level resources whose exclusive containers leave no memory of the pod for a
// container that shares it. The reason is EmptyPodSharedPoolError.
func CheckBubble(p *corev1.Pod) error {
	whole := ExclusivePod(p)
	staying, sharing := amounts{}, false
	full := func() (corev1.ResourceName, bool) {
		for _, name := range slices.Sorted(maps.Keys(whole)) {
			if staying[name] >= whole[name] {
				return name, true
			}
		}
		return "", false
	}
	for _, c := range pod.Containers(p) {
		own := Exclusive(p, c.Container)
		switch c.Kind {
		case pod.Ephemeral: // has no resources
		case pod.Init:
			if name, isFull := full(); isFull && len(own) == 0 {
				return reason.New("EmptyPodSharedPoolError",
					"pod rejected, pod has shared init containers but no %s available for them", name)
			}
		case pod.App, pod.Sidecar:
			sharing = sharing || len(own) == 0
			for name, size := range own {
				staying[name] += size
			}
		}
	}
	if name, isFull := full(); isFull && sharing {
		return reason.New("EmptyPodSharedPoolError",
			"pod rejected, sum of exclusive container %s requests equals pod budget, leaving no memory for "+
				"shared containers", name)
	}
	return nil
}

func sizes(list corev1.ResourceList) map[corev1.ResourceName]int64 {
	var all map[corev1.ResourceName]int64
	for name, q := range list {
		if !isMemory(name) || q.Sign() <= 0 {
			continue
		}
		if all == nil {
			all = map[corev1.ResourceName]int64{}
		}
		all[name] = q.Value()
	}
	return all
}

// manyHints limits how many sets of nodes are examined: all sets of 16 nodes.
const manyHints = 1 << 16

// Offers returns the sets of nodes that can serve a request, narrow sets first, as one offer for each resource. A hint
// is preferred if no narrower set would do even with nothing held. If no set can serve the request, the hints are nil,
// as in the kubelet: then Allocate fails, whatever the topology policy.
func Offers(s State, r Request) []topology.Offer {
	hints := s.hints(r)
	offers := make([]topology.Offer, 0, len(r.Sizes))
	for _, name := range slices.Sorted(maps.Keys(r.Sizes)) {
		offers = append(offers, topology.Offer{Resource: string(name), Hints: hints})
	}
	return offers
}

func (s State) hints(r Request) []topology.Hint {
	ids := make([]int, len(s.nodes))
	supplies := make([]supply, 0, len(r.Sizes))
	for i, n := range s.nodes {
		ids[i] = n.id
	}
	for name, size := range r.Sizes {
		l := supply{name: name, want: size, give: make([]int64, len(s.nodes))}
		for i, n := range s.nodes {
			l.give[i] = n.give[name]
		}
		supplies = append(supplies, l)
	}
	var hints []topology.Hint
	least, examined := 0, 0
	for size := 1; size <= len(ids); size++ {
		for subset, nodes := range topology.Subsets(ids, size) {
			if examined++; examined > manyHints {
				return hints
			}
			if slices.ContainsFunc(supplies, func(l supply) bool { return l.sum(subset) < l.want }) {
				continue
			}
			if least == 0 {
				least = size
			}
			if s.together(nodes) && !slices.ContainsFunc(supplies, func(l supply) bool {
				return l.sum(subset)-s.groups[nodes][l.name]+reusable(r.Reusable, nodes, l.name) < l.want
			}) {
				hints = append(hints, topology.Hint{Nodes: nodes, Preferred: size == least})
			}
		}
	}
	return hints
}

// supply is one resource of a request and how much of it each node has.
type supply struct {
	name corev1.ResourceName
	want int64
	give []int64 // by index of the node
}

// sum adds up the memory of the nodes of a subset. The subset is a bit mask of node indexes.
func (l supply) sum(subset uint64) (total int64) {
	for ; subset != 0; subset &= subset - 1 {
		total += l.give[bits.TrailingZeros64(subset)]
	}
	return total
}

func reusable(blocks []Block, nodes topology.Nodes, name corev1.ResourceName) (sum int64) {
	for _, b := range blocks {
		if b.Nodes == nodes && b.Resource == name {
			sum += b.Size
		}
	}
	return sum
}

// Allocate chooses the nodes for a request: the nodes of the merged hint, or the narrowest group that contains them if
// they cannot serve it. A hint without nodes means any. The blocks have the full sizes, even where they reuse blocks of
// ended containers (see Reuse). The error is a *reason.Error with the kubelet's reason.
func Allocate(s State, r Request, on topology.Hint) ([]Block, error) {
	if len(r.Sizes) == 0 {
		return nil, nil
	}
	hints := s.hints(r)
	if len(hints) == 0 {
		return nil,
			unavailable("failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
	}
	// hints are sorted by width, and all preferred hints are of the same, narrowest width.
	i := slices.IndexFunc(hints, func(h topology.Hint) bool { return on.Nodes&^h.Nodes == 0 })
	switch {
	case i < 0:
		return nil, unavailable("failed to find NUMA nodes to extend the current topology hint")
	case !on.Preferred || hints[i].Preferred || hints[i].Nodes == on.Nodes:
	case on.Nodes == 0:
		return nil, unavailable("failed to find the default preferred hint")
	default:
		return nil, unavailable("failed to find the extended preferred hint")
	}
	blocks := make([]Block, 0, len(r.Sizes))
	for _, name := range slices.Sorted(maps.Keys(r.Sizes)) {
		blocks = append(blocks, Block{Nodes: hints[i].Nodes, Resource: name, Size: r.Sizes[name]})
	}
	return blocks, nil
}

// Reuse subtracts new blocks from the blocks of ended containers that they take over. So the blocks of a pod add up to
// its usage. A fully reused block stays with 0 bytes, because its nodes still belong to the container.
func Reuse(ended, added []Block) []Block {
	left := slices.Clone(ended)
	for _, t := range added {
		for i := range left {
			if left[i].Nodes == t.Nodes && left[i].Resource == t.Resource {
				n := min(left[i].Size, t.Size)
				left[i].Size -= n
				t.Size -= n
			}
		}
	}
	return left
}

// unavailable returns the error of the kubelet's admission for memory that cannot be allocated.
func unavailable(why string) error {
	return reason.New("UnexpectedAdmissionError", "Allocate failed due to [memorymanager] %s, which is unexpected", why)
}
