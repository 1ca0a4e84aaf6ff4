package device

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// manyHints limits how many sets of nodes Hints examines: all sets of 16 nodes.
const manyHints = 1 << 16

// Hints returns the sets of NUMA nodes that can serve a request: sets with enough healthy devices that are free or
// reusable, and with as many of the reusable ones as the request can use. Narrow sets come first. A hint is preferred
// if no narrower set would have enough devices even if all were free. Nil means that the plugin reports no nodes, so
// any will do. Empty but not nil means that the request cannot be served.
//
// Only nodes with devices count, as in the kubelet. For a resource on more than 16 nodes, Hints returns the narrowest
// sets and the set of all nodes.
func Hints(inv Inventory, held Held, r Request) []topology.Hint {
	c := census(inv[r.Resource], held, r)
	if c.all == 0 {
		return nil
	}
	hints := []topology.Hint{}
	least := 0 // the size of the narrowest set with enough devices
	ids := c.all.IDs()
	examined := 0
	examine := func(n topology.Nodes) {
		total, free, reused := c.in(n)
		if total >= r.Count && least == 0 {
			least = n.Len()
		}
		if free >= r.Count && reused >= min(r.Count, c.reusable) {
			hints = append(hints, topology.Hint{Nodes: n, Preferred: n.Len() == least})
		}
	}
	for size := 1; size < len(ids); size++ {
		for _, n := range topology.Subsets(ids, size) {
			if examined++; examined > manyHints {
				examine(c.all)
				return hints
			}
			examine(n)
		}
	}
	examine(c.all)
	return hints
}

// counts are the devices that are close to exactly the same nodes.
type counts struct {
	nodes               topology.Nodes
	total, free, reused int
}

type censusOf struct {
	groups   []counts
	all      topology.Nodes
	reusable int // reusable devices with known nodes
}

func census(devices []Device, held Held, r Request) censusOf {
	c := censusOf{}
	at := map[topology.Nodes]int{}
	for _, d := range devices {
		if d.Nodes == 0 {
			continue
		}
		i, ok := at[d.Nodes]
		if !ok {
			i = len(c.groups)
			at[d.Nodes] = i
			c.groups = append(c.groups, counts{nodes: d.Nodes})
		}
		c.all |= d.Nodes
		g := &c.groups[i]
		g.total++
		switch {
		case !d.Healthy:
		case r.Reusable.Has(d.ID):
			g.free++
			g.reused++
			c.reusable++
		case !held[r.Resource].Has(d.ID):
			g.free++
		}
	}
	return c
}

// in counts the devices that are close to one of these nodes.
func (c censusOf) in(n topology.Nodes) (total, free, reused int) {
	for _, g := range c.groups {
		if g.nodes&n != 0 {
			total += g.total
			free += g.free
			reused += g.reused
		}
	}
	return total, free, reused
}

// Pick chooses the devices for a request and returns their IDs in order. It takes reusable devices first. Among those,
// and then among the others, it takes devices on the given nodes first, then devices on other nodes, then devices
// without known nodes. With on == 0 any node will do. The same input gives the same answer. The error is a
// *reason.Error with the reason and message of the kubelet's admission.
func Pick(inv Inventory, held Held, r Request, on topology.Nodes) ([]ID, error) {
	devices, registered := inv[r.Resource]
	if !registered {
		return nil, unavailable("cannot allocate unregistered device %s", r.Resource)
	}
	healthy := 0
	var free []Device
	for _, d := range devices {
		if !d.Healthy {
			continue
		}
		healthy++
		if r.Reusable.Has(d.ID) || !held[r.Resource].Has(d.ID) {
			free = append(free, d)
		}
	}
	switch {
	case healthy == 0:
		return nil, unavailable("no healthy devices present; cannot allocate unhealthy devices %s", r.Resource)
	case len(free) < r.Count:
		return nil,
			unavailable("requested number of devices unavailable for %s. Requested: %d, Available: %d", r.Resource,
				r.Count, len(free))
	}
	rank := func(d Device) int {
		if r.Reusable.Has(d.ID) {
			return distance(d, on)
		}
		return farthest + 1 + distance(d, on)
	}
	slices.SortFunc(free, func(a, b Device) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)),
			cmp.Compare(a.Nodes, b.Nodes),
			cmp.Compare(a.ID, b.ID),
		)
	})
	ids := make([]ID, r.Count)
	for i := range ids {
		ids[i] = free[i].ID
	}
	slices.Sort(ids)
	return ids, nil
}

// unexpected is the kubelet's reason when an allocation fails although the node as a whole has enough.
const unexpected = "UnexpectedAdmissionError"

// unavailable returns the error of the kubelet's admission for a device that cannot be allocated.
func unavailable(format string, args ...any) error {
	return reason.New(unexpected, "Allocate failed due to "+format+", which is unexpected", args...)
}

// farthest is the distance of a device without known nodes.
const farthest = 3

// distance ranks how far a device is from these nodes, from 0 to farthest.
func distance(d Device, on topology.Nodes) int {
	switch {
	case on == 0 && d.Nodes != 0, d.Nodes != 0 && d.Nodes&^on == 0:
		return 0
	case d.Nodes&on != 0:
		return 1 // the device spans several nodes, and some are among them
	case d.Nodes != 0:
		return 2
	}
	return farthest
}

// Choice returns the devices that a plugin may choose among (GetPreferredAllocation) for a container that was given
// some: those devices, and free ones close to the same nodes as one of them. Reusable devices must stay. So the NUMA
// nodes that admission chose hold whatever the plugin prefers.
func Choice(inv Inventory, held Held, r Request, given []ID) (available, mustInclude []ID) {
	mine, near := sets.New(given...), sets.New[topology.Nodes]()
	for _, d := range inv[r.Resource] {
		if mine.Has(d.ID) && !r.Reusable.Has(d.ID) {
			near.Insert(d.Nodes)
		}
	}
	for _, d := range inv[r.Resource] {
		switch {
		case mine.Has(d.ID) && r.Reusable.Has(d.ID):
			available, mustInclude = append(available, d.ID), append(mustInclude, d.ID)
		case mine.Has(d.ID), d.Healthy && near.Has(d.Nodes) && !held[r.Resource].Has(d.ID):
			available = append(available, d.ID)
		}
	}
	slices.Sort(available)
	slices.Sort(mustInclude)
	return available, mustInclude
}

// Prefer exchanges the given devices for those that the plugin prefers, each for one close to the same nodes. It
// ignores preferred devices outside of Choice, and more than were given.
func Prefer(inv Inventory, held Held, r Request, given, preferred []ID) []ID {
	available, _ := Choice(inv, held, r, given)
	offered, mine, wanted := sets.New(available...), sets.New(given...), sets.New(preferred...)
	nodes := map[ID]topology.Nodes{}
	for _, d := range inv[r.Resource] {
		nodes[d.ID] = d.Nodes
	}
	result := sets.New(given...)
	for _, id := range slices.Sorted(slices.Values(preferred)) {
		if !offered.Has(id) || mine.Has(id) || result.Has(id) {
			continue
		}
		for _, old := range given {
			if result.Has(old) && !wanted.Has(old) && !r.Reusable.Has(old) && nodes[old] == nodes[id] {
				result.Delete(old)
				result.Insert(id)
				break
			}
		}
	}
	return sets.List(result)
}
