// Package volume mounts a pod's volumes and removes them again.
//
// It owns these paths in <root>. They are laid out as the kubelet does:
//
//	pods/<uid>/volumes/kubernetes.io~empty-dir/<name>          one volume
//	pods/<uid>/volumeDevices/<kind>/<name>                     one block device
//	pods/<uid>/volume-subpaths/<volume>/<container>/<index>    bind mount of a subPath for one volumeMount
//	plugins/<kind>/<hash>                                      the part of a volume that pods share
//
// Each kind of volume has a sub-package that implements Kind. The container step finds a mounted volume with Path and
// MountPath.
//
// The state is on disk and in the mount table: Teardown needs neither an earlier Setup nor the pod's spec. Only Path
// and MountPath answer from memory; Setup runs again before a restarted agent starts any container.
package volume
