// Package network keeps the pod network of the embedded runtime: the CNI configuration that containerd uses, and the
// bridge of the built-in network.
//
// It is the only writer of [Config].Dir and [Config].RangesFile. containerd reads Dir and reloads it on every change.
// Dir follows [Config].CNIConfDir, or holds the built-in network while CNIConfDir has no configuration.
//
// A pod keeps the network that it was started with. When the pod ends, the plugins of that network detach it, even if
// another network has replaced it since or the agent has restarted. The record that libcni keeps of each attachment
// says which plugins these are.
package network
