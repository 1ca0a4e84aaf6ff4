// Package server is the agent's local API: pods, their logs, events and
// timelines, images and the agent's own state, over HTTP/1.1 on a unix socket
// that only root may open.
//
// It owns the socket and the leases that bind pods to a connection. Everything
// it tells is read through the small interfaces in server.go, and everything
// it is asked to change goes to an Applier; it keeps no pods of its own.
// client speaks to it, and so can any tool that knows the Kubernetes API: pods
// and events have the paths, parameters, watch and error bodies they have there.
//
// routes.go is the whole API, one line a route.
package server
