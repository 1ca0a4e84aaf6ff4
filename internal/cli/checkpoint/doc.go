// Package checkpoint has "berth checkpoint", which writes the state of a running container into an archive, and "berth
// restore", which runs a pod from that.
//
// The archive is the runtime's, with one file more: the pod, which the runtime does not know. Restore loads the archive
// as an image of one layer, and applies the pod with that image. The runtime restores each container of such an image.
package checkpoint
