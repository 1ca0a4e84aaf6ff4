package topology

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/api"
)

// lowerCache is a cache below the last level.
type lowerCache struct {
	api.Cache
	cpus []int
}

// mostSets is the largest number of caches whose CPUs one line lists.
const mostSets = 8

// lowerRows returns the lines for the caches of these cores below the last level. Caches of the same level,
// size and number of cores share a line.
func (d *drawing) lowerRows(cores []core) []row {
	type kind struct {
		level int
		size  int64
		cores int
	}
	var order []kind
	sets := map[kind][][]int{}
	for _, c := range d.lower {
		k := kind{level: c.Level, size: c.Size}
		var cpus []int
		for _, core := range cores {
			if slices.Contains(c.cpus, core.ID) {
				k.cores++
				cpus = append(cpus, core.cpus...)
			}
		}
		if k.cores == 0 {
			continue
		}
		if sets[k] == nil {
			order = append(order, k)
		}
		sets[k] = append(sets[k], cpus)
	}
	rows := make([]row, len(order))
	for i, k := range order {
		rows[i] = row{label: fmt.Sprintf("L%d %s", k.level, size(k.size)), cpus: slices.Concat(sets[k]...),
			cells: sharers(k.cores, sets[k])}
		if n := len(sets[k]); n > 1 {
			rows[i].label = fmt.Sprintf("%d x %s", n, rows[i].label)
		}
	}
	return rows
}

// sharers describes the CPUs that share each cache. cores is the number of cores per cache.
func sharers(cores int, sets [][]int) string {
	switch {
	case cores == 1 && len(sets) == 1:
		return "of 1 core"
	case cores == 1:
		return "one a core"
	case len(sets) == 1:
		return fmt.Sprintf("of %d cores", cores)
	}
	var lists []string
	for _, set := range sets[:min(len(sets), mostSets)] {
		lists = append(lists, fold(cpuset.New(set...).String()))
	}
	if more := len(sets) - len(lists); more > 0 {
		lists = append(lists, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("one for %d cores: %s", cores, strings.Join(lists, " "))
}
