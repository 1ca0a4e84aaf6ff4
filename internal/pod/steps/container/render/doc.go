// Package render makes the CRI configuration of a container from its pod, its image and the node's properties. It is
// pure: the same input gives the same configuration, in the same order.
//
// It owns the promises of Kubernetes about a container's environment, mounts, identity, confinement and resources. It
// also owns the hash that detects a container whose spec has changed. Package container owns the effects before it
// (volumes, files) and after it (the calls to the runtime).
package render
