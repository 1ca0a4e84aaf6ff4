// Package driver owns the CSI drivers that have registered on this node, the connections to them, and the CSIDriver
// objects that the cluster has for them.
//
// Package plugin finds drivers and calls Register and Deregister. A driver serves pods as soon as it has answered what
// it can do; package csinode publishes it to the API server meanwhile, which may reject it:
//
//	Register -> in use -> accepted, or API server unreachable -> stays in use
//	               |                                               |
//	               +-> rejected by the API server -> withdrawn     +-> Deregister -> removed
//
// Get and CSIDriver return an error to wait with while a driver has not registered or its object is unknown. Options.
// Changed wakes these waits.
package driver
