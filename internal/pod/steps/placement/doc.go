// Package placement runs containers on the CPUs and NUMA nodes that admission allotted to their pods. It decides
// nothing: the allocations are in the ledger of package resource.
//
// It implements the four hooks of a container's life:
//
//	PreCreate   adds cpuset.cpus and cpuset.mems to the configuration
//	PreStart    records the id; other containers leave its exclusive CPUs first
//	PreStop     -
//	PostStop    drops the record
//
// A container without exclusive CPUs runs on shared CPUs: the node's, or its pod's (KEP-5526). When the shared CPUs
// change, the kernel moves the running containers at once, and the runtime is notified afterwards (docs/adr/0013). If
// nothing is pinned, no container is recorded.
//
// It owns the record of the CPUs and NUMA nodes of each container, in memory only. After a restart Run reads it from
// the observed pods. Containers that ended while no agent ran are not in it.
package placement
