// Package api is the wire format of the agent's local API: the paths, query
// parameters and bodies that are not Kubernetes' own, and where the socket lies.
//
// Pods, events, watch events and errors are Kubernetes types (core/v1 and
// meta/v1) and are not repeated here. server writes these values, client reads
// them; neither imports the other.
package api
