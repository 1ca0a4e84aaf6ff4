// Package quota counts and limits the content of directories with project quotas of the file system, xfs or ext4.
//
// The count of a directory with a project is exact and needs no walk: the kernel adds each block to the project. The
// directory is also the record of its project. Its extended attribute "trusted.berth.project" has the project ID. A
// restarted agent reads the attribute, and it goes away with the directory. A container cannot change the attribute,
// because that needs CAP_SYS_ADMIN in the machine's user namespace.
//
// A program in the machine's user namespace may move its own files out of their project (ioctl_xfs_fssetxattr(2)).
// So the count of a project is exact for pods with a user namespace of their own, and a lower bound for others.
package quota
