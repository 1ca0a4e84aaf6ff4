// Package dockershim serves the CRI on a Docker Engine: the kubelet's shim of old, complete.
//
// A Server is the two services of CRI v1. It translates: each call becomes calls of the Engine API, and nothing but a
// cache of what the Engine says is kept here.
//
//	sandbox, container, image, node,
//	stats                             the calls, by noun
//	index                             the table of all containers, fed by the Engine's events
//	translate, identity, create       what Docker gets for a pod, and the names and labels of it
//	network                           the pod network, through libcni or the built-in one
//	pause                             the image of pause containers
//
// Packages dockerlog, dockerstream and dockerstats do the same for logs, streams and statistics.
package dockershim
