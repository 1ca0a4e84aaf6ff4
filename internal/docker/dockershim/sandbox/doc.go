// Package sandbox makes the sandboxes of pods: a pause container of Docker with a pod network.
//
// It owns the pause containers and writes their resolv.conf. Everything that it must know after a restart is in
// Docker's labels, in libcni's cache and in the kernel, so it stores nothing.
//
//	create --> start --> resolv.conf --> network --> ready
//	ready --> containers end --> network goes --> not ready --> removed
package sandbox
