// Package resource decides which CPUs, NUMA memory and devices of the node each pod gets, and records it.
//
// Decide is pure: it runs the allocators of the packages cpu, memory and device and lets package topology merge their
// offers into one choice of NUMA nodes. Ledger is the table of the holdings of every pod, with a checkpoint on disk.
// Admission writes it. This package changes no cgroup and calls no device plugin: the packages placement and device
// carry out its decisions.
package resource
