// Package terminal runs the owner of a container's terminal: a process of the shim's program that outlives the shim,
// because the end of a terminal's owner hangs up the container.
package terminal
