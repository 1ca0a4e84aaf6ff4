// Package server serves the agent's local API: pods, their logs, events and timelines, images and the agent's
// own state, over HTTP/1.1 on a unix socket that only root may open.
//
// It owns the leases that bind pods to a connection. It reads everything else through the small interfaces in
// server.go, and passes changes to an Applier. It keeps no pods of its own. Package client calls it, and so can any
// tool that knows the Kubernetes API: pods and events have the same paths, parameters, watches and error bodies
// there. The packages answer, query, selector, containers, logs, topology and socket hold its parts.
//
// routes.go lists the whole API, one line per route.
package server
