// Package allocation holds the exclusive resources of each pod (CPUs, memory of NUMA nodes, devices) from its admission
// to its end. Package resource decides which resources a pod gets. Packages placement and device apply its decisions.
//
//	admission   Allot computes what the pod would get, Book allocates it on disk,
//	            Reserve holds it until other pods have ended
//	PreStart    frees the memory of ended init containers
//	teardown    frees everything when nothing of the pod runs
//
// Only this package books and frees allocations. The one exception is the step of package device: it may exchange a
// container's devices in the ledger at their plugin's preference.
package allocation
