// Package container starts and stops the containers of a pod.
//
// It owns the life of one container start (start.go reads top to bottom), the
// order in which the containers of a pod are created and ended, the lifecycle
// handlers of the spec, the internal lifecycle on which allocators and the
// operator's hooks hang, and the links to logs for older collectors. What is to start and to stop is plan's decision; what
// the containers then do is pleg's to see.
//
// It is the only caller of CreateContainer, StartContainer, StopContainer and
// RemoveContainer for pods that have a worker. Its facts (Waiting, Starting)
// are read by podstatus.
//
//	   ... create          start            exit
//	absent ------> created ------> running ------> exited
//	                  |               |  stop         |
//	                  |               +-------------->+
//	                  +--- agent killed in between: removed and made anew,
//	                       with the same restart count
//
// A call that changes the runtime is not given up when the pod is to stop: it
// is waited for, and the observed state is read again before its task ends, so
// that no plan is made without it. Everything else (pulls, hooks, handlers, the
// turn of another container) ends at once.
package container
