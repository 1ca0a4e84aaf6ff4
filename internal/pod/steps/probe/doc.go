// Package probe runs the startup, readiness and liveness probes of running containers, and owns their verdicts.
//
// The pod's step reports which containers run. A single queue, ordered by when each probe is due, wakes the loop. A
// running probe has a goroutine, a waiting one has none. The plan reads the verdicts to decide what to kill, and
// podstatus reads them for started and ready. The callback Changed reports a new verdict at once. Verdicts are kept on
// disk by container id, with their counters and their phase: a restarted agent continues exactly where the last one
// ended.
//
//	worker --Setup--> targets --due--> check --> State.after --> verdicts --> plan, podstatus
//	                                                 |
//	                                                 +--> events, metrics, probes file
//
// The diagram shows the state of one probe of one container id. n is the threshold of the result.
//
//	            no verdict of startup yet              n x success
//	waiting ------------------------------> probing ---------------> verdict Success
//	   ^  (readiness, liveness)               |  ^                        |
//	   |                                      |  +---- readiness ---------+
//	   |                        n x failure   v
//	   |                               verdict Failure ---> on hold (startup, liveness)
//	   |                                                       |
//	   +-------------------- a new container id ---------------+
//
// A startup probe is on hold after success too. The package kills nothing: the plan reads the verdict, and the
// container step restarts the container.
package probe
