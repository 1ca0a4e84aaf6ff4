// Package manifest turns the text of a manifest into pods, and into the objects
// that pods name (package object knows what these have to be). It decodes, and
// for pods fills in defaults and validates, each a pure function.
//
//	text --Decode--> Object (as written) --Default--> pod --Validate--> errors with field paths
//
// The behaviour is that of the API server of Kubernetes 1.36 for pods. The
// sources, "berth apply" and "berth run" use it; it knows none of them.
package manifest
