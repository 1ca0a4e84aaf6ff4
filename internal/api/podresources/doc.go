// Package podresources serves the PodResources API v1 (KEP-606, KEP-2403) to monitoring agents and network
// plugins on this machine: which CPUs, memory and devices the node's containers hold.
//
// The package owns the socket and keeps no other state. It reads the allocation ledger, the device
// inventory and the machine.
package podresources
