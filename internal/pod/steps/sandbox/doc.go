// Package sandbox makes, keeps and ends the pod sandbox: the namespaces and the network that a pod's containers share.
//
// It owns the rendering of the CRI sandbox configuration and the calls for sandboxes. Package plan decides which
// sandbox is kept or replaced.
package sandbox
