// Package handler has the runtime handlers that the configuration adds: OCI runtimes of the machine, which Berth's shim
// calls instead of runc, and other shims of containerd's runtime API (version 2), which containerd starts for each pod.
package handler
