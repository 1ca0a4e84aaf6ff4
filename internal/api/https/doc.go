// Package https is the node's server for the cluster: what the API server,
// kubectl through it, metrics-server and Prometheus ask a kubelet for, on the
// kubelet's ports and paths.
//
// It owns three listeners: HTTPS with authentication and authorization, plain
// HTTP with the few routes of the read-only port, and the health port. Pods are
// read from the table that the local API serves too, logs and streams are those
// of package server, and everything else comes through the small interfaces in
// server.go. It keeps nothing but counters.
//
// routes.go is the whole of it, one line a route with the rights it needs.
package https
