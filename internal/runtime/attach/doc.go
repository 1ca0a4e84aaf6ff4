// Package attach attaches clients to containers whose log the shim writes: to their output, their standard input and
// their terminal.
//
// containerd's CRI plugin would read all output of all containers, in this process, in case a client attaches. This
// package reads the output of a container only while it has clients: the shim writes a copy of it to FIFOs while these
// have a reader. And the plugin passes input before it connects the output, so that a client may miss the answer to its
// first line. Here the output comes first.
//
// It serves the Attach calls for such containers, and their streams. The plugin serves those for containers without a
// log, and for those that an earlier agent has started.
package attach
