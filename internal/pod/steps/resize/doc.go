// Package resize changes the CPU and memory of pods while they run (KEP-1287).
//
// It owns two facts about each admitted pod: the resources that the node has allocated to it, which may differ from its
// spec, and the resources that each container last received. Both are stored on disk, one file a pod. The fleet calls
// Allocate to learn which version of a desired pod to run. The plan reads from Restarts which containers must restart.
// Package podstatus shows both facts and the conditions.
//
//	desired --Allocate--> allocated --steps--> actuated
//	             |                       |
//	     PodResizePending        PodResizeInProgress
//	 (Deferred, Infeasible)           (Error)
//
// At each pass the step compares the allocated with the actuated resources and starts a task for the difference. The
// task grows the pod's cgroup, updates the containers or marks them for a restart, and then shrinks the pod's cgroup to
// fit.
package resize
