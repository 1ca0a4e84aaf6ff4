// Package probe runs the startup, readiness and liveness probes of the
// containers that run, and owns their verdicts.
//
// Its step tells it which containers run; a single queue, ordered by when each
// probe is due, wakes it; a probe under way has a goroutine, one that waits has
// none. The verdicts are read by the plan (what to kill) and by podstatus
// (started, ready). Whoever needs to know at once is called back when one changes.
// They are kept on disk by container id with their counters and their phase: an
// agent that was restarted goes on exactly where the last one was.
//
//	worker --Setup--> targets --due--> check --> State.after --> verdicts --> plan, podstatus
//	                                                 |
//	                                                 +--> events, metrics, probes file
//
// The state of one probe of one container id, where n is the threshold of the
// result that came:
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
// A startup probe is on hold after success too. It does not kill: the plan reads
// the verdict and has the container restarted.
package probe
