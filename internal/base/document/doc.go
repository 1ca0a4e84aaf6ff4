// Package document reads YAML and JSON strictly, as the API server does. It reports the place of every fault: line,
// field, and what the field accepts.
//
// It knows nothing about the content of a document. The agent reads manifests and configuration files with it.
//
//	stream --Split--> documents --JSON--> JSON --Decode--> a Go value
//	                                   any failure --explain--> faults with lines
//
// YAML is read as Kubernetes reads it (YAML 1.1: yes and on are booleans). Every field must have a place in the Go
// value: an unknown field, a duplicate field and a value of the wrong type are faults. LenientJSON and DecodeLenient
// ignore the first two, as the kubelet does with its own files, and list them.
package document
