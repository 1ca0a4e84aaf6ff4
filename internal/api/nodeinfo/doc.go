// Package nodeinfo answers the requests of the local API that are about the agent itself and its machine: health,
// status, metrics, topology, pressure and usage. It computes nothing: the parts in Info do.
package nodeinfo
