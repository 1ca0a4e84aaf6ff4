// Package stdio opens the FIFOs of a container's standard input and output, so that neither the end of the shim nor
// that of the agent ends or blocks the container.
package stdio
