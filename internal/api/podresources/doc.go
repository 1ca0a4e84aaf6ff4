// Package podresources serves the PodResources API v1 (KEP-606, KEP-2403): which
// CPUs, memory and devices the containers of the node hold, for monitoring agents
// and network plugins on this machine.
//
// It owns the socket, and keeps nothing: it reads the ledger, the inventory of
// devices and the machine.
package podresources
