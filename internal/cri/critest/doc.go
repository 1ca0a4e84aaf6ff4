// Package critest tests that a container runtime works with Berth (Suite). It also has an in-memory runtime for unit
// tests of decisions (Fake).
//
// The suite requires only the CRI behaviour that the agent relies on: a runtime that passes it can run pods. It runs on
// the fake, on the embedded runtime and on external runtimes over their sockets.
//
// Tests reach the fake through the same client as a real runtime. The fake has no processes. It only produces the
// output, files and exit codes of the test workload's commands.
package critest
