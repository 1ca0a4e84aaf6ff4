// Package ownership gives the files of a volume to a group: the pod's fsGroup.
//
// It owns nothing. Pods that share a volume may work in it meanwhile. So every step uses a file descriptor, starting at
// the volume's root, follows no link and never leaves the volume's mount.
//
// It serves volumes that cannot be mounted with the group: a tmpfs has the mount option gid, and a CSI driver may apply
// the group itself.
package ownership
