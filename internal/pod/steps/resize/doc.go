// Package resize changes the CPU and memory of pods while they run (KEP-1287).
//
// It owns two facts about each admitted pod: what the node has allocated to it,
// which may not be what it asks for now, and what each of its containers was
// given last. Both are kept on disk, one file a pod. The fleet asks it which pod
// to run for a desired one (Allocate); plan learns which containers have to
// restart for it (Restarts); podstatus shows both and the conditions.
//
//	desired --Allocate--> allocated --steps--> actuated
//	             |                       |
//	     PodResizePending        PodResizeInProgress
//	 (Deferred, Infeasible)           (Error)
//
// The step compares what is allocated with what was actuated at each pass and
// makes the difference a task: the pod's cgroup grows, its containers are updated
// or marked for a restart, and the pod's cgroup shrinks to what is left.
package resize
