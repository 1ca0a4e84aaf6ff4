// Package device speaks with device plugins (device plugin API v1beta1, KEP-3573).
//
// It owns what plugins offer (Inventory, written by their ListAndWatch streams,
// read by admission), the sockets through which they register, and what they
// answered to Allocate, which is kept on disk. It decides on no device: the
// ledger holds what admission chose, and a plugin that has a preference may
// exchange some of that for others that are near to the same NUMA nodes.
//
//	           Register            stream ends, socket gone
//	(unknown) ----------> served -----------------------------> lost
//	    ^                   ^                                    |  |
//	    |                   +--------------- Register -----------+  |
//	    +------------------------ 5 minutes later ------------------+
//
// The devices of a lost plugin count as capacity and are not healthy. An agent that
// starts knows the resources of the one before, and they are lost to it.
//
// The step calls Allocate ahead of the containers' starts; a start waits for the
// answers that concern it, and asks itself when there is none. PreCreate puts them
// into the container's configuration and calls PreStartContainer.
package device
