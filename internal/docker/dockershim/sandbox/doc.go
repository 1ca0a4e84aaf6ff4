// Package sandbox makes the sandboxes of pods: a pause container of Docker with a pod network.
//
// It owns the pause containers and writes their resolv.conf. It stores nothing: after a restart it finds all facts in
// Docker's labels, in libcni's cache and in the kernel. The checkpoints of cri-dockerd lead it to the
// networks of sandboxes that Docker has lost.
//
//	create --> start --> resolv.conf --> network --> ready
//	ready --> containers end --> network goes --> not ready --> removed
package sandbox
