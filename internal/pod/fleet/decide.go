package fleet

import (
	"cmp"
	"time"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/worker"
)

// compare orders pods for admission: pods that run already come first, then higher priority, then the pod that the node
// has known longer, then the older pod, then the name.
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

// byName orders pods by namespace and name.
func byName(a, b *pod.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// endsBy returns when the grace period of a stopping pod is over. It is zero for a pod without a stop.
func endsBy(p *pod.Pod, s *pod.Stop) time.Time {
	if s == nil {
		return time.Time{}
	}
	return s.At.Add((&worker.Run{Pod: p, Stop: s}).Grace())
}

// ends returns the stops that the API server's version of a pod asks for, the first to apply first. It returns none if
// the pod continues. A rejected pod keeps the reason of its rejection.
func ends(p *pod.Pod, v Verdict, now time.Time) (stops []pod.Stop) {
	if p == nil || p.Source != pod.SourceAPI {
		return nil
	}
	switch {
	case v.Reject && p.DeletionTimestamp != nil:
		stops = append(stops, rejection(v, now))
	case !v.Reject && pod.Ended(p.Status.Phase): // no matter who has set the phase
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

// rejection returns the stop for a pod that runs although admission rejects it.
func rejection(v Verdict, now time.Time) pod.Stop {
	return pod.Stop{Reason: pod.StopReason(v.Reason), Message: "Pod was rejected: " + v.Message, At: now}
}
