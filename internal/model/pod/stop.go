package pod

import "time"

// Stop says that a pod is to end: why, and how long its containers get.
// Ending a pod is data; it is merged, never overwritten.
type Stop struct {
	// Reason is machine readable: Deleted, DeadlineExceeded, Evicted, Preempting, Terminated.
	Reason  string
	Message string
	// Grace is the time between the stop signal and the kill. nil means the
	// pod's own terminationGracePeriodSeconds. Minimum 0.
	Grace *time.Duration
	// At is when the first stop was asked for.
	At time.Time
	// Remove says that the pod object goes too when all is over; without it
	// the pod stays visible as Failed (eviction, deadline).
	Remove bool
}

// MergeStop joins a later stop into an earlier one: the first reason and time
// stay, the grace can only shrink, and a removal once asked for stays asked for.
func MergeStop(was *Stop, now Stop) Stop {
	if was == nil {
		return now
	}
	merged := *was
	merged.Remove = was.Remove || now.Remove
	switch {
	case now.Grace == nil:
	case was.Grace == nil, *now.Grace < *was.Grace:
		g := *now.Grace
		merged.Grace = &g
	}
	return merged
}
