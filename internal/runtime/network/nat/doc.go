// Package nat owns the nftables table of the built-in network: masquerading of pods, and host ports.
//
// The rules are made once and never change. They look up sets and maps. A pod has one element there for each address
// and two for each host port. So a pod's start costs the same however many pods there are:
//
//	pods4, pods6             addresses of pods
//	ports4, ports6           protocol, host port                   -> address and port of the pod
//	addressed4, addressed6   host address, protocol, host port     -> the same, for ports with a hostIP
//	forwarded4, forwarded6   protocol, host port, address and port of the pod: packets of connections to host ports
//
// The comment of an element is the sandbox's ID. The package keeps nothing in memory: its caller knows all pods.
package nat
