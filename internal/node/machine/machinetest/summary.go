package machinetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/machine"
)

// Summary describes a Machine completely in a short text, for golden files and messages.
func Summary(m machine.Machine) string {
	var out strings.Builder
	fmt.Fprintf(&out, "online %s", m.Online())
	if !m.Offline.IsEmpty() {
		fmt.Fprintf(&out, " offline %s", m.Offline)
	}
	fmt.Fprintf(&out, "\n%d cores of %d threads: %s\n", len(m.ByCore()), m.ThreadsPerCore(), sets(m.ByCore()))
	for _, id := range slices.Sorted(maps.Keys(m.BySocket())) {
		fmt.Fprintf(&out, "socket %d: %s\n", id, m.BySocket()[id])
	}
	for _, n := range m.Nodes {
		fmt.Fprintf(&out, "node %d: %s memory %d", n.ID, n.CPUs, n.Memory)
		for _, size := range slices.Sorted(maps.Keys(n.HugePages)) {
			fmt.Fprintf(&out, " %d*%d", n.HugePages[size], size)
		}
		fmt.Fprintf(&out, " distances %v\n", n.Distances)
	}
	for _, c := range m.Caches {
		fmt.Fprintf(&out, "cache %d: L%d %s size %d\n", c.ID, c.Level, c.CPUs, c.Size)
	}
	type kind struct {
		level int
		size  int64
	}
	lower, order := map[kind]map[int]cpuset.CPUSet{}, []kind{}
	for _, c := range m.Lower {
		k := kind{c.Level, c.Size}
		if lower[k] == nil {
			lower[k], order = map[int]cpuset.CPUSet{}, append(order, k)
		}
		lower[k][c.ID] = c.CPUs
	}
	for _, k := range order {
		fmt.Fprintf(&out, "lower caches: L%d size %d: %s\n", k.level, k.size, sets(lower[k]))
	}
	fmt.Fprintf(&out, "by cache: %s\n", sets(m.ByCache()))
	return out.String()
}

func sets(by map[int]cpuset.CPUSet) string {
	var words []string
	for _, id := range slices.Sorted(maps.Keys(by)) {
		words = append(words, by[id].String())
	}
	return strings.Join(words, " ")
}
