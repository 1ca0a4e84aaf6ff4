// Package document reads YAML and JSON the way the API server does, strictly,
// and says of every fault where it is: line, field, and what was wanted.
//
// It knows nothing of what a document is about. Manifests and configuration
// files are read through it.
//
//	stream --Split--> documents --JSON--> JSON --Decode--> a Go value
//	                                   any failure --explain--> faults with lines
//
// YAML is read as Kubernetes reads it (YAML 1.1: yes and on are booleans), and
// everything that a document says must have a place in the Go value: an unknown
// field, a field given twice and a value of the wrong type are faults.
package document
