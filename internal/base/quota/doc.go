// Package quota counts and limits what lies below a directory by project quotas of its file system, xfs or ext4.
//
// A directory that has a project counts exactly and at once: the kernel adds each block to the project, and nothing has
// to be walked. The record of a project is the directory itself. The trusted extended attribute "trusted.berth.project"
// has the ID, which a restarted agent reads again, and which goes away with the directory. A container cannot change
// the attribute, because that needs CAP_SYS_ADMIN in the machine's user namespace.
//
// A program in the machine's user namespace may move its own files out of their project (ioctl_xfs_fssetxattr(2)).
// So the count of a project is exact for pods with a user namespace of their own, and a lower bound for others.
package quota
