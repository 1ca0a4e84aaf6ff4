// Package nfs mounts directories of NFS servers: nfs volumes of pods, and PersistentVolumes with nfs.
//
// It owns the mount on <pod>/volumes/kubernetes.io~nfs/<name>, one for each pod; the kernel shares the connection. Like
// mount.nfs(8), it calls the kernel itself, but in a child process that can be killed (internal/base/mount). So a
// server that does not answer delays only the pod that uses it.
package nfs
