// Package container starts and stops the containers of a pod.
//
// It owns the life of one container start (start.go reads top to bottom) and the order of creating and ending the
// containers of a pod. It also owns the lifecycle handlers of the spec, and the links to logs for older collectors.
// Resource allocators and the operator's hooks use its internal lifecycle. Package plan decides which containers to
// start and to stop. Package pleg observes them afterwards.
//
// For pods that have a worker, it is the only caller of CreateContainer, StartContainer, StopContainer and
// RemoveContainer. Package podstatus reads its facts, Waiting and Starting.
//
//	   ... create          start            exit
//	absent ------> created ------> running ------> exited
//	                  |               |  stop         |
//	                  |               +-------------->+
//	                  +--- agent killed in between: removed and created again,
//	                       with the same restart count
//
// A call that changes the runtime is not cancelled when the pod shall stop. Its task waits for the result and then
// reads the observed state again, so that the next plan knows the result. Everything else (pulls, hooks, handlers, the
// turn of another container) is cancelled at once.
package container
