// Package stream asks the container runtime to prepare connections into pods (exec, attach and port
// forward), for the servers of the node. It keeps no state of its own.
package stream
