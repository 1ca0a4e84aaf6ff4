// Package ownership gives the files of a volume to a group: the pod's fsGroup.
//
// It owns nothing. Pods that share a volume may work in it meanwhile, so every
// step goes by file descriptor from the volume's root, follows no link and
// leaves the volume's mount nowhere.
//
// It is for volumes that cannot be mounted with the right group at once: a
// tmpfs has the mount option gid, and a CSI driver may take the group itself.
package ownership
