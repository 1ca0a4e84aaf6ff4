// Package resource decides what a pod is given of the node's CPUs, memory and
// devices, and remembers it.
//
// Decide is pure: it composes the allocators in cpu, memory and device under the
// answer that topology merges from them. Ledger is the table of what pods hold,
// written by admission only, and its checkpoint. It does not touch a cgroup or a
// device plugin: packages placement and device carry out what stands here.
package resource
