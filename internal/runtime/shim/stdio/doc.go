// Package stdio opens the FIFOs of a container's standard input and output, so that the end of the shim or of the agent
// neither ends nor blocks the container.
package stdio
