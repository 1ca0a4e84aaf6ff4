// Package allocation follows what a pod holds for itself (CPUs, memory of NUMA
// nodes, devices) from its admission to its end. What that is decides package
// resource; packages placement and device carry it out.
//
//	admission   Allot: what would it be given? Book: it is, on disk before it starts
//	            Keep: it is to be, when others have ended
//	PreStart    the memory of ended init containers is freed
//	teardown    all is freed when nothing of the pod runs
//
// It is the only one that books and frees. Devices of a container may be
// exchanged in the ledger by the step that asks their plugin.
package allocation
