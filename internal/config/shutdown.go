package config

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Shutdown configures how long a shutdown of the machine waits for pods. Empty, the default, does not delay it.
// Groups are in ascending order of priority. The first group includes all lower priorities.
type Shutdown []ShutdownGroup

// ShutdownGroup are the pods whose priority is at least Priority and below the next group's. They get Grace after all
// earlier groups have ended.
type ShutdownGroup struct {
	Priority int32
	Grace    time.Duration
}

// systemCritical is the lowest priority of critical pods, system-cluster-critical.
const systemCritical = 2_000_000_000

// readShutdown turns the three fields into one list. A pair of periods becomes two groups: the critical pods get
// their period at the end of the total.
func readShutdown(in *input) Shutdown {
	total, critical := in.kc.ShutdownGracePeriod.Duration, in.kc.ShutdownGracePeriodCriticalPods.Duration
	seconds := func(path string, d time.Duration) {
		if d < 0 || d > 0 && d < time.Second {
			in.Invalid(path, d.String(), "must be 0s or at least 1s")
		}
	}
	seconds("shutdownGracePeriod", total)
	seconds("shutdownGracePeriodCriticalPods", critical)
	if critical > total {
		in.Invalid("shutdownGracePeriodCriticalPods", critical.String(),
			"must be at most shutdownGracePeriod, %v, of which it is a part", total)
	}
	var all Shutdown
	path := field.NewPath("shutdownGracePeriodByPodPriority")
	for i, g := range in.kc.ShutdownGracePeriodByPodPriority {
		if g.ShutdownGracePeriodSeconds < 0 {
			in.Add(field.ErrorList{field.Invalid(path.Index(i).Child("shutdownGracePeriodSeconds"),
				g.ShutdownGracePeriodSeconds, "must not be negative")})
		}
		if slices.ContainsFunc(all, func(o ShutdownGroup) bool { return o.Priority == g.Priority }) {
			in.Add(field.ErrorList{field.Duplicate(path.Index(i).Child("priority"), g.Priority)})
		}
		all = append(all, ShutdownGroup{g.Priority, time.Duration(g.ShutdownGracePeriodSeconds) * time.Second})
	}
	switch {
	case len(all) > 0 && (total > 0 || critical > 0):
		in.Invalid("shutdownGracePeriodByPodPriority", in.kc.ShutdownGracePeriodByPodPriority,
			"must not be set together with shutdownGracePeriod")
	case len(all) == 0 && total > 0:
		all = Shutdown{{0, total - critical}, {systemCritical, critical}}
	}
	slices.SortFunc(all, func(a, b ShutdownGroup) int { return cmp.Compare(a.Priority, b.Priority) })
	return all
}
