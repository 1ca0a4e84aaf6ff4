package topologytest

import (
	"fmt"

	"github.com/berth-run/berth/internal/node/machine"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// Line makes NUMA nodes in a line: the distance grows by 10 with each id.
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

// UpTo is a Line of n nodes from 0.
func UpTo(n int) []machine.Node {
	ids := make([]int, n)
	for id := range ids {
		ids[id] = id
	}
	return Line(ids...)
}

// Request is what a container tells that wants CPUs, memory and devices of four
// kinds on a machine of n nodes. In agreement each can be served by any one node.
// Else the CPUs take half of the nodes, the memory a quarter, and the devices are
// near to one node each, so that nothing is preferred by all.
func Request(n int, agree bool) []topology.Wish {
	each := func(amount int) []int {
		all := make([]int, n)
		for i := range all {
			all[i] = amount
		}
		return all
	}
	wishes := []topology.Wish{wish("cpu", each(32), 8), wish("memory", each(64), 16)}
	if !agree {
		wishes = []topology.Wish{wish("cpu", each(32), max(1, 16*n)), wish("memory", each(64), max(1, 16*n))}
	}
	for i := range 4 {
		near := each(2)
		if !agree {
			near = each(0)
			near[i*n/4] = 2
		}
		wishes = append(wishes, wish(fmt.Sprintf("example.com/device-%d", i), near, 1))
	}
	return wishes
}

// wish tells all sets of nodes that have enough, the smallest as preferred.
func wish(name string, has []int, need int) topology.Wish {
	w := topology.Wish{Resource: name, Hints: []topology.Hint{}}
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
