// Package checkpoint writes archives of checkpoints of containers. They have the parts of containerd's archives that a
// restore reads. The package owns the temporary directory of an archive that it writes.
//
// The Engine writes the state of the processes, if it is experimental and CRIU is installed. The Engine API does not
// give the other parts: the specification comes from the directory of the container's shim process, the changed files
// from the writable layer.
package checkpoint
