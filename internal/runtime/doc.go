// Package runtime is the embedded container runtime: containerd with its CRI plugin, linked as a library and served
// over in-memory gRPC.
//
// The package owns everything below [Config].Root and [Config].State; nothing else writes there. That is: images,
// snapshots, container metadata, the embedded programs (runc, the CNI plugins, the holder, the shim) and the CNI
// configuration that containerd uses. While the machine has no CNI configuration, the package also owns the pod
// network, its bridge and its packet filter table (package network).
//
// It knows the CRI and nothing of pods. Its only readers are CRI clients, over [Runtime.Conn] in this process or over
// [Runtime.Serve] on a unix socket.
//
// Processes:
//
//	berth (this package) --exec, calls (ttrpc)--> shim --exec--> runc --> containers
//	      ^                                         |
//	      +----------- exits, OOMs (ttrpc) ---------+
//
// The shim is a separate program (package shim), one for all pods. It and the containers outlive this process: a later
// Run on the same directories finds them again. If the shim is killed, package tasks starts another.
//
// # What is stock and what is ours
//
// These parts are Berth's own: the installation of the programs (package program), the sandbox controller (package
// sandbox), the task plugin (package tasks), the shim, the built-in network (package network), the output for attached
// clients (package attach) and the in-memory connection. The services of containers and tasks are containerd's, each
// behind a small part of ours (packages briefspec and exits). containerd looks less often for events to retry (package
// retries) and for the mount of cgroups (package cgroupmount). Stock containerd are the CRI plugin and its use of CNI
// for the networks of a CNI configuration. containerd's own sandbox controller and task plugin stay linked for pods of
// earlier versions, which have pause containers and a shim each.
//
// Each stock part is named in one place and can be replaced there: the sandbox controller in [serverConfig], the linked
// plugins in plugins.go, the network in package network.
package runtime
