// Package placement puts containers on the CPUs and NUMA nodes that they were
// given. It decides nothing: what a pod holds stands in the ledger of package
// resource, which admission writes.
//
// It hangs on the four hooks of a container's life:
//
//	PreCreate   cpuset.cpus and cpuset.mems go into the configuration
//	PreStart    the id is booked; who runs where this one is to be alone moves away first
//	PreStop     -
//	PostStop    the id is released
//
// A container that has no CPUs of its own runs on those that are shared: of the
// node, or of its pod (KEP-5526). When these change, the running ones get the new
// set in the kernel at once and are told to the runtime after that
// (docs/adr/0013). While nothing is pinned, nothing is booked.
//
// It owns which id runs where, in memory only: after a restart Run reads it from
// the observed pods, which also releases what ended while no agent ran.
package placement
