// Package manifest turns the text of a manifest into pods and into the objects that pods name (package object validates
// these). It decodes objects, sets the defaults of pods and validates them, each in a pure function.
//
//	text --Decode--> Object (as written) --Default--> pod --Validate--> errors with field paths
//
// For pods it behaves as the API server of Kubernetes 1.36. The sources, "berth apply" and "berth run" use it. It
// depends on none of them.
package manifest
