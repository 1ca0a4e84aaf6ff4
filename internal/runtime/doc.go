// Package runtime is the embedded container runtime: containerd with its CRI plugin as a library in
// our own process, served over in-memory gRPC.
//
// It owns everything below [Config].Root and [Config].State: images, snapshots, container metadata,
// the programs it carries (runc, the CNI plugins, pause, the shim), which CNI configuration containerd
// uses, and, while the machine has none of its own, the pod network and its bridge. Nothing else writes there. It knows the
// CRI and nothing of pods; its only readers are CRI clients, by [Runtime.Conn] in this process or by
// [Runtime.Serve] on a unix socket.
//
// Processes:
//
//	berth (this package) --exec--> shim, one per pod --exec--> runc --> containers
//	      ^                             |
//	      +---- exits, OOMs (ttrpc) ----+
//
// A shim is a program of its own (shim). Shims and containers outlive this process: a Run on the same
// directories finds them again.
//
// # The pod network
//
// containerd reads a directory of ours, Root/cni, and looks again whenever it changes. It has the files of
// [Config].CNIConfDir, which is followed, or else that of the built-in network. A pod keeps what it was
// started with; when it ends, the plugins of that network are asked to take it back, by the record that
// libcni keeps of each attachment, also after a restart and whatever the network is by then.
//
// # What is stock and what is ours
//
// Ours are the programs' installation, the pause image, the network's configuration and the way in.
// Stock containerd are the sandbox controller ("podsandbox": a pause container per pod), the shim's
// task service and the CNI plugins. Each is named in one place, to be replaced there: the sandboxer
// and the shim in [serverConfig], the linked plugins in plugins.go, the task service in shim,
// the network in [networkConfig].
package runtime
