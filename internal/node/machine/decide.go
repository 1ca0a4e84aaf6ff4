package machine

import (
	"cmp"
	"slices"

	"k8s.io/utils/cpuset"
)

// lastLevel chooses, of caches sorted from the highest level, those of the
// highest level at which one is shared by several cores. CPUs without a cache of
// this level, as the small cores of a hybrid processor, have their
// next lower shared one. The others are lower, from the lowest level.
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

// nameCaches sets CPU.Cache.
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
		if cache, has := cacheOf[c.ID]; has {
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
