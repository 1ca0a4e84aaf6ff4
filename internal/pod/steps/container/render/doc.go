// Package render makes the CRI configuration of a container from its pod, its
// image and what the node offers. All of it is pure: the same input gives the
// same configuration, in the same order.
//
// It owns what Kubernetes promises about a container's environment, mounts,
// identity, confinement and resources, and the hash by which a container whose
// spec changed is told apart. The effects that come before (volumes, files) and
// after (the calls to the runtime) are package container's.
package render
