// Package serve builds the node's HTTPS server. It answers the requests that the API server, kubectl and Prometheus
// send to a kubelet.
//
// It owns the server with its certificate and its access rules, and the statistics, which are collected on request. If
// no port is configured, New returns a Node that does nothing.
package serve
