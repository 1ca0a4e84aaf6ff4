// Package local mounts local PersistentVolumes: directories of this machine, the file systems of block devices, and
// block devices for volumeMode Block.
//
// It owns <root>/plugins/kubernetes.io~local-volume, where the file system of a device is mounted once for all pods. It
// formats an empty device and changes no other content.
package local
