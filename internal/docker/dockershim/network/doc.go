// Package network connects sandboxes of a Docker Engine to the pod network.
//
// Docker makes only the network namespace of a pause container. This package keeps the namespace with a mount, so that
// plugins can clean up after the pause container has ended. Then it calls the CNI plugins of the machine's
// configuration through libcni. If that configuration is the built-in network's, it calls the built-in network instead.
//
// It owns the mounts of namespaces. libcni's cache and the built-in network's leases record the networks of each pod.
// The pod's addresses are in the kernel.
package network
