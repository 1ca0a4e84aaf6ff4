// Package record stores what the device plugins of a node have listed and answered, so that the next agent continues
// with it: the devices of each resource, and the answers to Allocate of each pod. It also writes both into the
// checkpoint of a kubelet, which may take over the node, and reads the checkpoint that a kubelet has left.
//
// Package supply writes the devices and package device writes the answers. No other package writes them.
package record
