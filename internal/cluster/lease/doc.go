// Package lease renews the Lease that says that this node is alive:
// kube-node-lease/<node>. It is its only writer; the node lifecycle controller
// reads it and marks a node that stopped renewing as unreachable.
//
// The lease is renewed every quarter of its duration, measured on the monotonic
// clock: a clock that jumps delays no renewal. It belongs to the Node object, so
// that it goes with it. While the API server is away renewing is tried on, with
// backoff; nothing else of the agent waits for it.
package lease
