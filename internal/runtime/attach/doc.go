// Package attach attaches clients to the output of containers whose log the shim writes.
//
// containerd's CRI plugin would read all output of all containers, in this process, in case a client attaches. This
// package reads the output of a container only while it has clients: the shim writes a copy of it to FIFOs while these
// have a reader. It serves the Attach calls for such containers, and their streams. The plugin serves those for the
// other containers, which have a terminal, standard input or no log, or which an earlier agent has started.
package attach
