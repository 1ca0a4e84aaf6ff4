// Package dockershim serves the CRI on a Docker Engine, as the kubelet's own dockershim did until Kubernetes 1.23.
//
// A Server has the two services of CRI v1. It turns each call into calls of the Engine API, and keeps only a cache of
// the Engine's answers.
//
//	sandbox, container, image, node,
//	stats                             the calls, by noun
//	index                             the table of all containers, fed by the Engine's events
//	translate, identity, create       what Docker gets for a pod, and the names and labels of it
//	network                           the pod network, through libcni or the built-in one
//	pause                             the image of pause containers
//
// Packages dockerlog, dockerstream and dockerstats serve logs, streams and statistics.
package dockershim
