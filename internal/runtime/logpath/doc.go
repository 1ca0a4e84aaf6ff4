// Package logpath passes the path of a container's log to the shim, which writes the log. containerd's CRI plugin would
// write it in the agent's process, and so not while no agent runs.
//
// It changes CRI calls on their way to the plugin. The plugin gets a container without a log, and the path as an
// annotation that it passes on to the shim. The path is put back into the plugin's answers. A container that was made
// before is left alone: the plugin writes its log.
package logpath
