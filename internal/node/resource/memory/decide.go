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

// Request is what one container, or a pod as a whole, asks for.
type Request struct {
	// Sizes are bytes by resource, each more than 0.
	Sizes map[corev1.ResourceName]int64
	// Reusable is held by init containers of the pod that have ended by then. It
	// is taken in the State too.
	Reusable []Block
}

// Exclusive is what a container is due for itself of NUMA nodes: all memory and
// huge pages that it requests, in a Guaranteed pod. nil: nothing. In a pod with
// pod-level resources only a container whose own requests of CPU and memory are
// its limits is due any (KEP-5526).
func Exclusive(p *corev1.Pod, c *corev1.Container) map[corev1.ResourceName]int64 {
	if pod.QOS(p) != corev1.PodQOSGuaranteed || resourcehelper.IsPodLevelResourcesSet(p) && !guaranteed(c) {
		return nil
	}
	return sizes(c.Resources.Requests)
}

// guaranteed says whether a container alone would make a Guaranteed pod.
func guaranteed(c *corev1.Container) bool {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
		if limit.Sign() <= 0 || request.Cmp(limit) != 0 {
			return false
		}
	}
	return true
}

// Whole is what a pod is due as a whole: its pod-level requests, or else what its
// containers are due at the time when that is the most.
func Whole(p *corev1.Pod) map[corev1.ResourceName]int64 {
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

// CheckBubble rejects a pod with pod-level resources whose containers take all of
// its memory for themselves and leave none to one that shares it. Its reason is
// EmptyPodSharedPoolError.
func CheckBubble(p *corev1.Pod) error {
	whole := Whole(p)
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
			if name, is := full(); is && len(own) == 0 {
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
	if name, is := full(); is && sharing {
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

// manyHints bounds the sets of nodes that are looked at: those of 16 nodes.
const manyHints = 1 << 16

// Wishes are the sets of nodes that could serve a request, the narrow ones first,
// the same for each resource of it. Preferred are those as narrow as would do if
// nothing were taken. When none could serve it the hints are nil, as in the
// kubelet: it is Allocate that fails then, whatever the policy.
func Wishes(s State, r Request) []topology.Wish {
	hints := s.hints(r)
	wishes := make([]topology.Wish, 0, len(r.Sizes))
	for _, name := range slices.Sorted(maps.Keys(r.Sizes)) {
		wishes = append(wishes, topology.Wish{Resource: string(name), Hints: hints})
	}
	return wishes
}

func (s State) hints(r Request) []topology.Hint {
	ids := make([]int, len(s.nodes))
	supplies := make([]line, 0, len(r.Sizes))
	for i, n := range s.nodes {
		ids[i] = n.id
	}
	for name, size := range r.Sizes {
		l := line{name: name, want: size, give: make([]int64, len(s.nodes))}
		for i, n := range s.nodes {
			l.give[i] = n.give[name]
		}
		supplies = append(supplies, l)
	}
	var hints []topology.Hint
	least, looked := 0, 0
	for size := 1; size <= len(ids); size++ {
		for subset, nodes := range topology.Subsets(ids, size) {
			if looked++; looked > manyHints {
				return hints
			}
			if slices.ContainsFunc(supplies, func(l line) bool { return l.of(subset) < l.want }) {
				continue
			}
			if least == 0 {
				least = size
			}
			if s.together(nodes) && !slices.ContainsFunc(supplies, func(l line) bool {
				return l.of(subset)-s.groups[nodes][l.name]+reusable(r.Reusable, nodes, l.name) < l.want
			}) {
				hints = append(hints, topology.Hint{Nodes: nodes, Preferred: size == least})
			}
		}
	}
	return hints
}

// line is one resource of a request beside what each node has to give of it.
type line struct {
	name corev1.ResourceName
	want int64
	give []int64 // by index of the node
}

// of is what the nodes at the indices of a subset give together.
func (l line) of(subset uint64) (sum int64) {
	for ; subset != 0; subset &= subset - 1 {
		sum += l.give[bits.TrailingZeros64(subset)]
	}
	return sum
}

func reusable(blocks []Block, nodes topology.Nodes, name corev1.ResourceName) (sum int64) {
	for _, b := range blocks {
		if b.Nodes == nodes && b.Resource == name {
			sum += b.Size
		}
	}
	return sum
}

// Allocate chooses the nodes for a request: those of the topology's answer, or if
// these cannot serve it the narrowest group that holds them; with an answer of no
// nodes, any. The blocks are whole, also where they reuse some (Reuse). The error
// is a *reason.Error with the kubelet's reason.
func Allocate(s State, r Request, on topology.Hint) ([]Block, error) {
	if len(r.Sizes) == 0 {
		return nil, nil
	}
	hints := s.hints(r)
	if len(hints) == 0 {
		return nil,
			unavailable("failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
	}
	// Narrow ones come first, and of the narrowest the preferred are all.
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

// Reuse takes off the blocks of containers that have ended by then what new ones
// take over of them, so that all blocks of a pod in sum are what it takes. A block
// of which nothing is left stays, with 0 bytes: its nodes are the container's.
func Reuse(ended, taken []Block) []Block {
	left := slices.Clone(ended)
	for _, t := range taken {
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

// unavailable is how the kubelet's admission tells of memory that it cannot
// allocate.
func unavailable(why string) error {
	return reason.New("UnexpectedAdmissionError", "Allocate failed due to [memorymanager] %s, which is unexpected", why)
}
