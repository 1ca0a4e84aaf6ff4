// Package builtin does in the shim what two short commands of the built-in runc do: start and delete. Each would
// execute runc once more in the life of a container, on the way to its first instruction and to its restart.
//
// It knows runc's state directory: a FIFO in which the first process of a container waits for its start. It owns
// nothing. Containers of other OCI runtimes, and those with a need that only runc meets, have runc's commands.
package builtin
