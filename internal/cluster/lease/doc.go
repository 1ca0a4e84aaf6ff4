// Package lease renews the Lease kube-node-lease/<node>, which shows that this node is alive. It is its only writer.
// The node lifecycle controller reads it and marks a node that stops renewing as unreachable.
//
// The lease is renewed every quarter of its duration, measured on the monotonic clock: a clock that jumps delays no
// renewal. The Node object owns the lease, so that it is deleted with the node. While the API server is away, renewal
// is retried with a back-off. No other part of the agent waits for it.
//
// The package does not use k8s.io/component-helpers/apimachinery/lease. That controller waits a whole interval if the
// Node object does not exist yet, sets no deadline for a call, and logs every failed try.
package lease
