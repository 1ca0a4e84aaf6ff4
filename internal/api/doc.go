// Package api defines the wire format of the agent's local API: the query parameters, headers and bodies
// that Kubernetes does not have.
//
// Pods, events, watch events and errors are Kubernetes types (core/v1 and meta/v1) and are not repeated
// here. Package server writes these values and package client reads them. Neither imports the other.
package api
