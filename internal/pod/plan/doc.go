// Package plan decides what is to be done for one pod: which sandbox to keep or
// make, what to kill and why, what to start and in which order, and when to
// look again.
//
// Compute is pure. It reads the pod, what the runtime shows, probe verdicts and
// the time, never what an earlier pass did, so that an agent that was restarted
// in the middle of anything arrives at the same plan. The worker asks for a
// plan, the steps sandbox and container carry it out.
package plan
