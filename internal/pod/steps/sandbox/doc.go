// Package sandbox makes, keeps and ends the pod sandbox: the namespaces and the
// network that a pod's containers share.
//
// It owns the rendering of the CRI sandbox configuration and the calls that act
// on sandboxes. Which one is kept or replaced is plan's decision.
package sandbox
