// Package limit bounds what one client of an HTTP server can use: connections, requests under way, and request bodies.
//
// It owns the counts of the clients of one server. A client is an address; all clients of a unix socket count as one.
package limit
