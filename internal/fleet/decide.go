package fleet

import (
	"cmp"

	"github.com/berth-run/berth/internal/pod"
)

// compare orders pods for admission: those that run already first, then the
// higher priority, then the older, then by name.
func compare(a *pod.Pod, runsA bool, b *pod.Pod, runsB bool) int {
	first := func(x bool) int {
		if x {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(first(runsA), first(runsB)),
		cmp.Compare(priority(b), priority(a)),
		a.Seen.Compare(b.Seen),
		cmp.Compare(pod.FullName(a.Pod), pod.FullName(b.Pod)),
	)
}

func priority(p *pod.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}
