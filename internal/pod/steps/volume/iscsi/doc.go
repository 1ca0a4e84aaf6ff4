// Package iscsi mounts disks of iSCSI targets: iscsi volumes of pods, and PersistentVolumes with iscsi. It logs in and
// out with iscsiadm(8) of this machine (open-iscsi), and finds the disks in the kernel's files.
//
// It owns the mounts in <root>/plugins/kubernetes.io/iscsi, one for each disk, and the bind mounts in the pods'
// directories. Both have the kubelet's places. The file "session" beside the users of a shared part says which sessions
// were begun for it, so that others stay when the volume goes.
package iscsi
