// Package endpoint chooses which container runtime an agent uses where its
// configuration names none: the one it carries, or the one that a kubelet on this
// node would use.
//
// It owns that choice and keeps nothing: what an earlier agent or kubelet has left
// on the node says how it was made before. A pod must never be started a second
// time in another runtime. Package agent asks it once, before it starts a runtime.
package endpoint
