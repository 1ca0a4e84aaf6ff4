// Package fifos has the FIFOs of the streams of containers: the ones in the bundle of a container with a log, and
// containerd's, for other containers.
//
// It owns what the agent has open of them so that nothing is lost while a killed shim is being replaced. Package attach
// opens FIFOs for clients.
package fifos
