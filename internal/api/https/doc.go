// Package https serves the node's API to the cluster: the requests that the API server, kubectl through it,
// metrics-server and Prometheus send to a kubelet, on the kubelet's ports and paths.
//
// The package owns three listeners: HTTPS with authentication and authorization, plain HTTP with the few
// routes of the read-only port, and the health port. It reads pods from the table that the local API serves too. It
// uses package server for logs and streams, and the small interfaces in server.go for everything else. It keeps no
// state but counters.
//
// routes.go lists the whole API: one line per route, with the rights it needs.
package https
