// Package checkpoint is the form in which a kubelet keeps the devices of pods:
// kubelet_internal_checkpoint beside the sockets of device plugins. Package device
// writes it, so that a kubelet can take the node over, and reads a kubelet's.
package checkpoint
