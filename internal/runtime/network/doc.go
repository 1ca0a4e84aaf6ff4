// Package network keeps the pod network of the embedded runtime: the built-in network, and the CNI configuration that
// containerd uses.
//
// It is the only writer of [Config].Dir, [Config].RangesFile and [Config].Leases. containerd reads Dir and reloads it
// on every change. Dir follows [Config].CNIConfDir, or names the built-in network while CNIConfDir has no
// configuration.
//
// containerd's CRI plugin calls this package for the network of each pod (package plugin). For the built-in network the
// package makes everything itself (package endpoint): leases of addresses (lease), devices (link), masquerading and
// host ports (nat) and limits of bandwidth (shape). No program is executed. For the machine's CNI configuration the
// call goes on to containerd.
//
// A pod keeps the network that it was started with. A pod with a lease is one of the built-in network. The plugins of
// their network detach all other pods when they end, even if another network has replaced it since or the agent has
// restarted. The record that libcni keeps of each attachment says which plugins these are. This includes pods of the
// versions before, whose built-in network CNI plugins made.
package network
