// Package link makes the network devices of pods in the built-in network: a pair of virtual Ethernet devices, with one
// end in the pod's network namespace and the other one on the bridge.
//
// The alias of the bridge's end names the sandbox and its addresses. So the kernel itself shows what a pod has, also if
// a lease is lost.
package link
