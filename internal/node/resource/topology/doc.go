// Package topology decides on which NUMA nodes the parts of a pod are to be
// placed: it merges what the allocators of CPUs, memory and devices could do
// into one answer. All of it is pure.
package topology
