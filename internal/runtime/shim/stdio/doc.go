// Package stdio opens the FIFOs of a container's standard input and output. The end of the shim or of the agent then
// neither ends nor blocks the container.
package stdio
