// Package condition decides the conditions of the node: MemoryPressure,
// DiskPressure, PIDPressure and Ready, in the kubelet's words of Kubernetes 1.36.
//
// The Table is their only writer. Parts of the agent hand in facts, each under
// its own Kind; what no fact speaks of is well. Decide makes the conditions from
// the facts, the conditions before and the time; package object sends them.
//
//	runtime, network, pleg, storage, shutdown, eviction --Set--> [facts]
//	                                                               |
//	  conditions of the Node object ------------------------> Decide --> conditions
//
// A fact is about the node. What is wrong with one pod is never a fact here: a
// pod that is stuck does not make the node NotReady. Conditions of other types,
// as of a network plugin or a problem detector, belong to whoever writes them.
package condition
