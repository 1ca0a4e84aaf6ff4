// Package csinode tells the cluster which CSI drivers this node has: in its CSINode
// object, and in the Node's annotation of ids and its topology labels. It is the only
// writer of these.
//
// What is to be told comes from package csi, which uses a driver before the cluster
// knows of it: news waits here until the API server has taken it.
//
//	Tell -> first try -> Accepted says whether it was refused
//	          |  ^
//	          +--+ again, until it is told or there is other news
package csinode
