// Package heap keeps the agent's memory small: an agent is idle most of the time, and returns the memory that a burst
// of work has used. It owns the garbage collector's percentage of the process, and gRPC's pool of buffers.
package heap
