// Package volume mounts a pod's volumes and takes them away again.
//
// It owns in <root>, laid out as the kubelet does:
//
//	pods/<uid>/volumes/kubernetes.io~empty-dir/<name>          one volume
//	pods/<uid>/volumeDevices/<kind>/<name>                     one block device
//	pods/<uid>/volume-subpaths/<volume>/<container>/<index>    a part of one, bound for one mount
//	plugins/<kind>/<hash>                                      what pods share of one
//
// What a kind of volume needs is in a sub-package for each, behind Kind. The
// container step asks Path and SubPath where a volume is found.
//
// The state is on the disk and in the mount table: Teardown needs neither a
// Setup before it nor the pod's spec. Only Path answers from memory, and Setup
// runs again before any container starts under a new agent.
package volume
