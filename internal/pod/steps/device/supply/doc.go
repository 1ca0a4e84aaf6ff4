// Package supply connects the node to its device plugins (device plugin API v1beta1, KEP-3573). It owns the Inventory
// of the devices that plugins offer and the socket where plugins register. The plugins' ListAndWatch streams write the
// Inventory, and admission reads it.
//
//	           Register            stream ends, socket gone
//	(unknown) ----------> served -----------------------------> lost
//	    ^                   ^                                    |  |
//	    |                   +--------------- Register -----------+  |
//	    +------------------------ 5 minutes later ------------------+
//
// The devices of a lost plugin count as capacity but are unhealthy. After a restart of the agent, every resource that
// the previous agent knew starts as lost.
package supply
