// Package runtime is the embedded container runtime: containerd with its CRI plugin, linked as a library and served
// over in-memory gRPC.
//
// The package owns everything below [Config].Root and [Config].State; nothing else writes there. That is: images,
// snapshots, container metadata, the embedded programs (runc, the CNI plugins, pause, the shim) and the CNI
// configuration that containerd uses. While the machine has no CNI configuration, the package also owns the pod network
// and its bridge.
//
// It knows the CRI and nothing of pods. Its only readers are CRI clients, over [Runtime.Conn] in this process or over
// [Runtime.Serve] on a unix socket.
//
// Processes:
//
//	berth (this package) --exec--> shim, one per pod --exec--> runc --> containers
//	      ^                             |
//	      +---- exits, OOMs (ttrpc) ----+
//
// A shim is a separate program (package shim). Shims and containers outlive this process: a later Run on the same
// directories finds them again.
//
// # What is stock and what is ours
//
// Berth's own are the installation of the programs, the pause image, the network configuration and the in-memory
// connection. Stock containerd are the sandbox controller ("podsandbox": a pause container per pod), the shim's task
// service and the CNI plugins.
//
// Each stock part is named in one place and can be replaced there: the sandbox controller and the shim in
// [serverConfig], the linked plugins in plugins.go, the task service in package shim, the network in package network.
package runtime
