// Package csinode publishes the CSI drivers of this node to the API server: in the node's CSINode object, and in the
// Node's annotation of driver ids and its topology labels. It is the only writer of these.
//
// Package driver calls Publish and uses the driver at once. The update waits here until the API server accepts it:
//
//	Publish -> first try -> Accepted reports a rejection to the registration
//	             |  ^
//	             +--+ retries until the API server accepts the update or a newer one replaces it
package csinode
