package topologytest

import (
	"math/bits"

	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// Reference gives the same answer as topology.Merge in the plainest way: like the kubelet it tries every combination of
// one hint for each offer and keeps the best.
func Reference(o topology.Options, on []machine.Node, offers []topology.Offer) (topology.Hint, bool) {
	var all topology.Nodes
	for _, n := range on {
		all |= topology.Of(n.ID)
	}
	lists := listsOf(o, offers)
	want := 0
	for _, list := range lists {
		least := 0
		for _, h := range list {
			if h.Nodes != 0 && (least == 0 || h.Nodes.Len() < least) {
				least = h.Nodes.Len()
			}
		}
		want = max(want, least)
	}
	var best *topology.Hint
	each(lists, nil, func(way []topology.Hint) {
		merged := common(all, way)
		if merged.Nodes != 0 && (best == nil || beats(o, on, want, merged, *best)) {
			best = &merged
		}
	})
	if best == nil {
		best = &topology.Hint{Nodes: all}
	}
	if o.Policy == topology.SingleNUMANode && best.Nodes == all {
		best.Nodes = 0
	}
	return *best, best.Preferred || o.Policy == topology.BestEffort
}

func listsOf(o topology.Options, offers []topology.Offer) [][]topology.Hint {
	var lists [][]topology.Hint
	for _, w := range offers {
		list := w.Hints
		switch {
		case w.Hints == nil:
			list = []topology.Hint{{Preferred: true}}
		case len(w.Hints) == 0:
			list = []topology.Hint{{}}
		}
		if o.Policy == topology.SingleNUMANode {
			var kept []topology.Hint
			for _, h := range list {
				if h.Preferred && h.Nodes.Len() < 2 {
					kept = append(kept, h)
				}
			}
			list = kept
		}
		lists = append(lists, list)
	}
	return lists
}

func each(lists [][]topology.Hint, way []topology.Hint, visit func([]topology.Hint)) {
	if len(way) == len(lists) {
		visit(way)
		return
	}
	for _, h := range lists[len(way)] {
		each(lists, append(way[:len(way):len(way)], h), visit)
	}
}

func common(all topology.Nodes, way []topology.Hint) topology.Hint {
	merged, first := topology.Hint{Nodes: all, Preferred: true}, topology.Nodes(0)
	for _, h := range way {
		merged.Preferred = merged.Preferred && h.Preferred
		if h.Nodes == 0 {
			continue
		}
		if first == 0 {
			first = h.Nodes
		}
		merged.Preferred = merged.Preferred && h.Nodes == first
		merged.Nodes &= h.Nodes
	}
	return merged
}

// beats is the kubelet's comparison, case by case.
func beats(o topology.Options, on []machine.Node, want int, candidate, current topology.Hint) bool {
	fitter := func() bool {
		if candidate.Nodes.Len() != current.Nodes.Len() {
			return candidate.Nodes.Len() < current.Nodes.Len()
		}
		if o.PreferClosest && o.Policy != topology.SingleNUMANode {
			if a, b := average(on, candidate.Nodes), average(on, current.Nodes); a != b {
				return a < b
			}
		}
		return candidate.Nodes < current.Nodes
	}
	has, had := candidate.Nodes.Len(), current.Nodes.Len()
	switch {
	case candidate.Preferred != current.Preferred:
		return candidate.Preferred
	case candidate.Preferred, had > want:
		return fitter()
	case had == want:
		return has == want && fitter()
	case has > want:
		return false
	case has == want, has > had:
		return true
	}
	return has == had && fitter()
}

func average(on []machine.Node, n topology.Nodes) float64 {
	sum, count := 0.0, 0.0
	for _, from := range on {
		for rest := uint64(n); rest != 0; rest &= rest - 1 {
			if n.Has(from.ID) {
				sum, count = sum+float64(from.Distances[bits.TrailingZeros64(rest)]), count+1
			}
		}
	}
	return sum / count
}
