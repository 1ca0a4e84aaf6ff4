package fleet

import (
	"cmp"
	"time"

	"github.com/berth-run/berth/internal/pod"
	"github.com/berth-run/berth/internal/worker"
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
		cmp.Compare(pod.Priority(b.Pod), pod.Priority(a.Pod)),
		a.Seen.Compare(b.Seen),
		cmp.Compare(pod.FullName(a.Pod), pod.FullName(b.Pod)),
	)
}

// endsBy is when the grace of a pod that is to stop is over; zero for one that is
// not.
func endsBy(p *pod.Pod, s *pod.Stop) time.Time {
	if s == nil {
		return time.Time{}
	}
	return s.At.Add((&worker.Run{Pod: p, Stop: s}).Grace())
}
