// Package volume mounts a pod's volumes and takes them away again.
//
// It owns <root>/pods/<uid>/volumes and volume-subpaths, laid out as the
// kubelet does:
//
//	volumes/kubernetes.io~empty-dir/<name>          one volume
//	volume-subpaths/<volume>/<container>/<index>    a part of one, bound for one mount
//
// What a kind of volume needs is in a sub-package for each, behind Kind. The
// container step asks Path and SubPath where a volume is found.
//
// The state is on the disk and in the mount table: Teardown needs neither a
// Setup before it nor the pod's spec. Only Path answers from memory, and Setup
// runs again before any container starts under a new agent.
package volume
