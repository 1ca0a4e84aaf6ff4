// Package handler has the runtime handlers that the configuration adds: OCI runtimes of the machine, which the shim
// calls instead of runc.
package handler
