// Package builtin does the work of two short commands of the built-in runc in the shim: start and delete. Otherwise
// each container would need two more executions of runc: one before its first instruction, one before its restart.
//
// It knows runc's state directory, which has a FIFO: there the first process of a container waits for its start. It
// owns nothing. The shim uses the commands for containers of other OCI runtimes, and for containers with a need that
// only runc meets.
package builtin
