package machine

import (
	"cmp"
	"slices"

	"k8s.io/utils/cpuset"
)

// lastLevel splits caches, which are sorted from the highest level down. last are the caches of the highest level at
// which several cores share one. For CPUs without a cache of that level, such as the small cores of a hybrid processor,
// it has their next lower shared cache. lower are all others, lowest level first.
func lastLevel(cores map[int]cpuset.CPUSet, caches []Cache) (last, lower []Cache) {
	coreOf := map[int]int{}
	for core, threads := range cores {
		for _, id := range threads.UnsortedList() {
			coreOf[id] = core
		}
	}
	shared := map[int]bool{}
	for _, c := range caches {
		for _, id := range c.CPUs.UnsortedList() {
			shared[c.Level] = shared[c.Level] || coreOf[id] != coreOf[c.ID]
		}
	}
	covered := cpuset.New()
	for _, c := range caches {
		if shared[c.Level] && c.CPUs.Intersection(covered).IsEmpty() {
			last = append(last, c)
			covered = covered.Union(c.CPUs)
		} else {
			lower = append(lower, c)
		}
	}
	slices.SortFunc(last, func(a, b Cache) int { return a.ID - b.ID })
	slices.SortFunc(lower, func(a, b Cache) int { return cmp.Or(a.Level-b.Level, a.ID-b.ID) })
	return last, lower
}

// nameCaches sets CPU.Cache of all CPUs.
func nameCaches(m *Machine) {
	cacheOf := map[int]int{}
	for _, cache := range m.Caches {
		for _, id := range cache.CPUs.UnsortedList() {
			cacheOf[id] = cache.ID
		}
	}
	type place struct{ socket, node int }
	least := map[place]int{}
	for i, c := range m.CPUs {
		if cache, found := cacheOf[c.ID]; found {
			m.CPUs[i].Cache = cache
			continue
		}
		at := place{c.Socket, c.Node}
		if _, known := least[at]; !known {
			least[at] = c.ID
		}
		m.CPUs[i].Cache = least[at]
	}
}
