// Package nfs mounts directories of NFS servers: nfs volumes of pods, and
// PersistentVolumes with nfs.
//
// It owns the mount on <pod>/volumes/kubernetes.io~nfs/<name>, one for each pod;
// the kernel shares what is behind it. It speaks to the kernel itself, as
// mount.nfs(8) does, in a process that can be killed (internal/base/mount), so that a
// server that does not answer holds up nothing but the pod that asks for it.
package nfs
