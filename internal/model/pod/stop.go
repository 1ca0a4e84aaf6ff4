package pod

import "time"

// StopReason says why a pod ends. The constants below are not all of its values: a pod that is rejected while it runs
// ends with the reason of the rejection, such as OutOfcpu.
type StopReason string

// Reasons to end a pod, as Kubernetes spells them in PodStatus.Reason.
const (
	// StopDeleted ends a pod that a user, the API server or its manifest no longer wants.
	StopDeleted StopReason = "Deleted"
	// StopCompleted ends a pod whose containers have all ended by themselves: the node removes its remains.
	StopCompleted StopReason = "Completed"
	// StopDeadline ends a pod that ran for longer than its activeDeadlineSeconds.
	StopDeadline StopReason = "DeadlineExceeded"
	// StopEvicted ends a pod for the sake of the node, or because it used more than its limit.
	StopEvicted StopReason = "Evicted"
	// StopPreempting ends a pod to make room for a critical one.
	StopPreempting StopReason = "Preempting"
	// StopShutdown ends a pod because the machine shuts down (KEP-2000).
	StopShutdown StopReason = "Terminated"
)

// FailsPod says whether a stop for this reason makes the pod Failed, whatever its containers exited with. A pod
// that was deleted or has completed is judged by its containers.
func (r StopReason) FailsPod() bool { return r != StopDeleted && r != StopCompleted }

// Stop says that a pod must end: why, and how much time its containers get. It is data: a later stop is
// merged into an earlier one (MergeStop) and does not overwrite it.
type Stop struct {
	Reason  StopReason
	Message string
	// Grace is the time between the stop signal and the kill. nil means the
	// pod's own terminationGracePeriodSeconds. Minimum 0.
	Grace *time.Duration
	// Exact: Grace counts even if it is below 2 s, the least time that the agent otherwise leaves between the stop
	// signal and the kill.
	Exact bool
	// At is the time of the first request to stop.
	At time.Time
	// Remove says that the pod object is removed too once the pod has ended. Without it the pod stays visible as
	// Failed, as after an eviction or a deadline.
	Remove bool
}

// MergeStop merges a later stop into an earlier one. The first reason and time stay, the grace can only shrink, and
// Remove and Exact stay set.
func MergeStop(was *Stop, now Stop) Stop {
	if was == nil {
		return now
	}
	merged := *was
	merged.Remove, merged.Exact = was.Remove || now.Remove, was.Exact || now.Exact
	switch {
	case now.Grace == nil:
	case was.Grace == nil, *now.Grace < *was.Grace:
		g := *now.Grace
		merged.Grace = &g
	}
	return merged
}
