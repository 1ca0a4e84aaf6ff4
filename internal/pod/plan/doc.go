// Package plan decides what to do for one pod: which sandbox to keep or create, which containers to kill and why, which
// containers to start, in what order, and when to compute the next plan.
//
// Compute is pure. Its input is the pod, the observed state, the probe verdicts and the time, but no result of an
// earlier pass. An agent that was restarted at any moment therefore computes the same plan. The worker calls Compute,
// and the steps sandbox and container carry out the plan.
package plan
