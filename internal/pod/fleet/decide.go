package fleet

import (
	"cmp"
	"time"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/worker"
)

// compare orders pods for admission: those that run already first, then the
// higher priority, then the longer known, then the older, then by name.
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
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
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

// ends is how a pod is to end that the API says is to, in the order in which it
// was found out; none for one that goes on. A pod that was refused keeps the reason.
func ends(p *pod.Pod, v Verdict, now time.Time) (stops []pod.Stop) {
	if p == nil || p.Source != pod.SourceAPI {
		return nil
	}
	switch {
	case v.Reject && p.DeletionTimestamp != nil:
		stops = append(stops, rejection(v, now))
	case !v.Reject && pod.Ended(p.Status.Phase): // whoever said so
		stops = append(stops, pod.Stop{Reason: pod.StopCompleted, At: now})
	}
	if p.DeletionTimestamp == nil {
		return stops
	}
	s := pod.Stop{Reason: pod.StopDeleted, Message: "the pod was deleted", Remove: true, At: now}
	if grace := p.DeletionGracePeriodSeconds; grace != nil {
		s.Grace = new(time.Duration(max(0, *grace)) * time.Second)
	}
	return append(stops, s)
}

// rejection ends a pod that runs and may not.
func rejection(v Verdict, now time.Time) pod.Stop {
	return pod.Stop{Reason: pod.StopReason(v.Reason), Message: "Pod was rejected: " + v.Message, At: now}
}
