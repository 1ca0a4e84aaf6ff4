// Package condition decides the conditions of the node: MemoryPressure, DiskPressure, PIDPressure and Ready, with the
// reasons and messages of the kubelet 1.36.
//
// Parts of the agent report facts to the Table, each under its own Kind. A kind without a fact has no problem, but the
// node is not ready before there are facts for Runtime and Network. Decide computes the conditions from the facts, the
// previous conditions and the time. Package nodeobject sends them.
//
//	runtime, network, pleg, storage, shutdown, eviction --Set--> [facts]
//	                                                               |
//	  conditions of the Node object ------------------------> Decide --> conditions
//
// A fact is about the node, never about one pod: a pod that is stuck does not make the node NotReady. Conditions of
// other types belong to their writers, for example a network plugin or a problem detector.
package condition
