// Package servertest provides an agent for tests of clients of the local API: the real server on a real
// socket, with pods whose state the test sets.
//
// It owns the socket and a log directory and removes both at the end of the test. No container runs: a pod
// has the status that the test gives it.
package servertest
