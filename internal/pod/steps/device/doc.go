// Package device connects the node to its device plugins (device plugin API v1beta1, KEP-3573).
//
// It owns the Inventory of devices that plugins offer, the socket where plugins register, and the plugins' answers to
// Allocate, which it stores on disk. The plugins' ListAndWatch streams write the Inventory and admission reads it. The
// package chooses no device: admission books its choice in the ledger. A plugin with a preference may exchange a booked
// device for a free one that is equally near to the chosen NUMA nodes.
//
//	           Register            stream ends, socket gone
//	(unknown) ----------> served -----------------------------> lost
//	    ^                   ^                                    |  |
//	    |                   +--------------- Register -----------+  |
//	    +------------------------ 5 minutes later ------------------+
//
// The devices of a lost plugin count as capacity but are unhealthy. After a restart of the agent, every resource that
// the previous agent knew starts as lost.
//
// The step calls Allocate before the containers start. A container's start waits for the answers about its own devices
// and asks again if there is none. PreCreate adds the answers to the container's configuration. PreStart calls
// PreStartContainer.
package device
