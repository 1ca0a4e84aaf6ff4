// Package network connects sandboxes of a Docker Engine to the pod network.
//
// Docker makes the network namespace of a pause container and no more. This package keeps the namespace by a mount, so
// that plugins can clean up after the pause container has ended, and calls the CNI plugins of the machine's
// configuration through libcni. If that configuration is the built-in network's, it calls the built-in network instead.
//
// It owns the mounts of namespaces. What a pod is attached to is in libcni's cache and in the built-in network's
// leases; its addresses are in the kernel.
package network
