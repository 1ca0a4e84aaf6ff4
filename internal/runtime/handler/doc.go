// Package handler has the runtime handlers that the configuration adds: OCI runtimes of the machine, and other shims of
// containerd's runtime API (version 2). Berth's shim calls such an OCI runtime instead of runc. containerd starts
// another shim for each pod.
package handler
