// Package serve wires the node's HTTPS server: what the cluster, kubectl and
// Prometheus ask a kubelet for, answered from the agent's own parts.
//
// It owns the server with its certificate and its access rules, and the statistics
// that are made when somebody asks. A node without ports has a Node that does
// nothing.
package serve
