// Package fc mounts Fibre Channel disks: fc volumes of pods, and PersistentVolumes with fc. The disks come from the
// storage network by themselves; this package scans for them, and finds them by the links that udev makes in /dev/disk.
//
// It owns the mounts in <root>/plugins/kubernetes.io/fc, one for each disk, and the bind mounts in the pods'
// directories. Both have the kubelet's places. A disk goes from the machine with the last pod that uses it.
package fc
