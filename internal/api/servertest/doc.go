// Package servertest is an agent for tests of what speaks to the local API: the
// real server on a real socket, over pods that the test moves by hand.
//
// It owns the socket and a log directory, both of which go with the test.
// Nothing runs: a pod has the status that the test gives it.
package servertest
