package config

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Shutdown says how long a shutdown of the machine waits for pods. Empty, the
// default: it is not delayed. Priorities ascend; the first one stands for all
// lower ones too.
type Shutdown []ShutdownGroup

// ShutdownGroup are the pods with a priority from Priority on to that of the
// next group. They get Grace, after all groups before.
type ShutdownGroup struct {
	Priority int32
	Grace    time.Duration
}

// systemCritical is where critical pods begin: system-cluster-critical.
const systemCritical = 2_000_000_000

// shutdown is the three fields in one list. A pair of periods is two groups: the
// critical pods get theirs out of the whole.
func (b joiner) shutdown() Shutdown {
	total, critical := b.kc.ShutdownGracePeriod.Duration, b.kc.ShutdownGracePeriodCriticalPods.Duration
	seconds := func(path string, d time.Duration) {
		if d < 0 || d > 0 && d < time.Second {
			b.invalid(path, d.String(), "must be 0s or at least 1s")
		}
	}
	seconds("shutdownGracePeriod", total)
	seconds("shutdownGracePeriodCriticalPods", critical)
	if critical > total {
		b.invalid("shutdownGracePeriodCriticalPods", critical.String(),
			"must be at most shutdownGracePeriod, %v, of which it is a part", total)
	}
	var all Shutdown
	path := field.NewPath("shutdownGracePeriodByPodPriority")
	for i, g := range b.kc.ShutdownGracePeriodByPodPriority {
		if g.ShutdownGracePeriodSeconds < 0 {
			b.add(field.ErrorList{field.Invalid(path.Index(i).Child("shutdownGracePeriodSeconds"),
				g.ShutdownGracePeriodSeconds, "must not be negative")})
		}
		if slices.ContainsFunc(all, func(o ShutdownGroup) bool { return o.Priority == g.Priority }) {
			b.add(field.ErrorList{field.Duplicate(path.Index(i).Child("priority"), g.Priority)})
		}
		all = append(all, ShutdownGroup{g.Priority, time.Duration(g.ShutdownGracePeriodSeconds) * time.Second})
	}
	switch {
	case len(all) > 0 && (total > 0 || critical > 0):
		b.invalid("shutdownGracePeriodByPodPriority", b.kc.ShutdownGracePeriodByPodPriority,
			"must be left out with shutdownGracePeriod, or the other way round")
	case len(all) == 0 && total > 0:
		all = Shutdown{{0, total - critical}, {systemCritical, critical}}
	}
	slices.SortFunc(all, func(a, b ShutdownGroup) int { return cmp.Compare(a.Priority, b.Priority) })
	return all
}
