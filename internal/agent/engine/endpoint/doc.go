// Package endpoint chooses the container runtime of an agent whose configuration names none. It is the embedded
// runtime, or the one that a kubelet on this node would use.
//
// It owns that choice and stores nothing. What an earlier agent or kubelet has left on the node shows which runtime it
// used: a pod must never be started a second time in another runtime. Package engine calls Choose once, before it
// starts a runtime.
package endpoint
