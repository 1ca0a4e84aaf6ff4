// Package device decides which devices of a node a container gets. It is pure: package internal/pod/steps/device talks
// to the device plugins (KEP-3573) and provides the inventory.
//
// Hints lists the NUMA nodes that could serve a request; package topology merges it with the hints of other resources.
// Pick chooses devices on the nodes that the merge chose. When the pod starts, its plugin may exchange devices within
// the limits of Choice and Prefer.
package device
