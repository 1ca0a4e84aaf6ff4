// Package device decides which devices of a node a container is given. All of it
// is pure; what there is to give is told by the device plugins (KEP-3573), which
// package internal/pod/steps/device speaks with.
//
// Hints is what the topology merge asks, Pick is asked with its answer. Choice and
// Prefer are what a plugin may change of that when the pod starts.
package device
