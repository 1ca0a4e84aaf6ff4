package topologytest

import (
	"fmt"

	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// Line returns NUMA nodes in a row: the distance grows by 10 with each id between two nodes.
func Line(ids ...int) []machine.Node {
	var all []machine.Node
	for _, id := range ids {
		n := machine.Node{ID: id, Distances: map[int]int{}}
		for _, to := range ids {
			n.Distances[to] = 10 + 10*max(id-to, to-id)
		}
		all = append(all, n)
	}
	return all
}

// UpTo returns a Line of the nodes 0 to n-1.
func UpTo(n int) []machine.Node {
	ids := make([]int, n)
	for id := range ids {
		ids[id] = id
	}
	return Line(ids...)
}

// Request returns the offers for a container that requests CPUs, memory and devices of four kinds on a machine with n
// nodes. If agree is true, any single node can serve each of them. Otherwise the CPUs need half of the nodes, the
// memory a quarter, and each kind of device is close to one node only. Then all resources together prefer no nodes.
func Request(n int, agree bool) []topology.Offer {
	each := func(amount int) []int {
		all := make([]int, n)
		for i := range all {
			all[i] = amount
		}
		return all
	}
	offers := []topology.Offer{offer("cpu", each(32), 8), offer("memory", each(64), 16)}
	if !agree {
		offers = []topology.Offer{offer("cpu", each(32), max(1, 16*n)), offer("memory", each(64), max(1, 16*n))}
	}
	for i := range 4 {
		near := each(2)
		if !agree {
			near = each(0)
			near[i*n/4] = 2
		}
		offers = append(offers, offer(fmt.Sprintf("example.com/device-%d", i), near, 1))
	}
	return offers
}

// offer lists all sets of nodes that have enough. The smallest sets are preferred.
func offer(name string, has []int, need int) topology.Offer {
	w := topology.Offer{Resource: name, Hints: []topology.Hint{}}
	least := len(has)
	for x := 1; x < 1<<len(has); x++ {
		on, sum := topology.Nodes(x), 0
		for _, id := range on.IDs() {
			sum += has[id]
		}
		if sum >= need {
			least = min(least, on.Len())
			w.Hints = append(w.Hints, topology.Hint{Nodes: on})
		}
	}
	for i, h := range w.Hints {
		w.Hints[i].Preferred = h.Nodes.Len() == least
	}
	return w
}
