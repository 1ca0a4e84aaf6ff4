// Package critest is what every container runtime must do for Berth, as a test
// (Suite), and a runtime in memory for unit tests of decisions (Fake).
//
// The suite states the CRI behaviour that the agent relies on, no more: a runtime
// that passes it can run pods. It runs on the fake, on the embedded runtime and
// on external runtimes over their sockets. The fake is reached through the same
// client as a real runtime; it has no processes, only what the test workload's
// commands would have shown of them.
package critest
