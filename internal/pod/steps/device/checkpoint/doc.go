// Package checkpoint encodes the kubelet's checkpoint of the devices of pods: the file kubelet_internal_checkpoint
// beside the sockets of device plugins. Package record writes the file so that a kubelet can take over the node, and
// reads the file that a kubelet wrote.
package checkpoint
