// Package aside keeps the pods that are set aside: the code that works on them has panicked.
//
// It owns the set (Register), the condition and the event of such a pod, and the delay before the next try. The worker
// of a pod, its probes and the computation of its status report panics. The worker and the fleet's loop leave the pod
// alone until the time of the next try. Its containers keep running meanwhile.
//
// A panic in a loop that serves all pods ends the agent instead (package guard). The next agent finds the reports of
// such ends (package crash). At its start it sets a pod aside if several reports name the pod.
package aside
