// Package critest tests that a container runtime works with Berth (Suite).
//
// The suite requires only the CRI behaviour that the agent relies on: a runtime that passes it can run pods. It runs on
// the in-memory runtime (package fake), on the embedded runtime and on external runtimes over their sockets.
package critest
