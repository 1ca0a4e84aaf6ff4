// Package tasks is containerd's view of running containers, as its task plugin: it makes bundles and has the node's one
// shim run them.
//
// It owns the directory of bundles. Its only writers are [Manager.Create] and [Manager.Delete]; the shim owns task.json
// in each bundle, and writes the exits of deleted containers.
//
// The stock plugin executes the shim at the start of each pod and at the end of each container. It takes a container
// for dead when the connection to its shim closes. This one starts one shim and connects to it once. When the shim
// ends, it starts another, which continues with the containers, and repeats the calls that were in progress.
//
// containerd has no streams of a container with a log. Package attach writes its input, and reads the copy of its
// output that the shim makes while a client is attached.
//
// The stock plugin still serves containers that it has started: containers of earlier versions of Berth, and containers
// of handlers with a shim of their own.
package tasks
